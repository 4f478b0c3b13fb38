//! `approve`: lists cascades that wait for an approval, and approves one. The digest identifies the objects of a
//! cascade.

use super::patches::{self, Consent};
use super::store::{self, Patched};
use super::{Waiting, approval_of, extent, guard_id, known, release, root, totals, waiting};
use crate::kubectl::columns::{Cell, columns};
use crate::kubectl::confirm::confirmed;
use crate::kubectl::document::{Document, Kind, Schema};
use crate::kubectl::ending::{Answered, Ending, Problem};
use crate::kubectl::flags::{Approve, Format};
use crate::kubectl::naming::{Catalogue, by_type, lines_by_type, pairs, shown};
use crate::kubectl::reviews;
use crate::kubectl::service::{Need, Service};
use crate::kubectl::session::Session;
use crate::name::command;
use engine::guard::{GuardId, GuardKind};
use proto::admin::v1beta1::{Cascade, Guard};
use proto::r#type::v1beta1::ObjectRef;
use runtime::visible::line;
use serde_json::json;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Yaml, Format::Name];
const LIFETIME: Duration = Duration::from_secs(3600);
/// Maximum number of attempts to change an Approval that others change too.
const ATTEMPTS_MAX: usize = 5;

pub(crate) async fn run(flags: Approve) -> Answered {
    let Approve { root: words, digest, lifetime, yes, asking } = flags;
    let mut session = Session::open(asking, &FORMATS).await?;
    if let [word] = words.as_slice()
        && let Some(id) = guard_id(word).filter(|id| id.kind == GuardKind::Budget)
    {
        if digest.is_some() || lifetime.is_some() {
            return Err(Problem::sentence(format!("{id} needs neither --digest nor --for")));
        }
        if matches!(session.format, Format::Json | Format::Yaml) {
            return Err(Problem::sentence(format!("a new window of {id} has no document: leave out -o")));
        }
        return release::open_window(&session, &id).await;
    }
    let at_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !words.is_empty() && digest.is_none() && !at_terminal {
        return Err(Problem::sentence(format!(
            "stdin is not a terminal: give --digest with the digest that {} approve prints",
            command()
        )));
    }
    let wanted = if words.is_empty() { None } else { Some(address(&session, &words).await?) };
    let mut service = Service::connect(&mut session, Need::Leader).await?;
    let guards = known(&mut service.admin).await?;
    let Some(wanted) = wanted else { return list(&session, &guards) };
    let (cascade, approvals) = chosen(&guards, &wanted, digest.as_deref()).map_err(Problem::Refused)?;
    if digest.is_none() {
        let what = shown(&root(&cascade));
        let shown = format!("{what} takes {}\ndigest {}\n", extent(&cascade), cascade.digest);
        let question = format!("To approve the deletion of these objects, type {}: ", line(&wanted.name));
        confirmed(&shown, (!yes).then_some((question.as_str(), wanted.name.as_str())), "nothing was approved")?;
    }
    let by = reviews::user(&session).await;
    for name in &approvals {
        let id = GuardId { kind: GuardKind::Approval, name: name.as_str().into() };
        give(&session, &id, &cascade, lifetime.unwrap_or(LIFETIME), &by).await?;
        if session.format == Format::Table {
            session.print(&format!("{} approved by {id}\n", by_type(&root(&cascade))))?;
        }
    }
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document(&[(cascade, approvals)])?)?,
        Format::Name => session.print(&lines_by_type([cascade.root.as_ref()]))?,
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
        }
    }
    Ok(Ending::Fine)
}

/// Approves, without a question, a cascade with this root and digest for one of the Approvals that it waits for.
pub(in crate::kubectl) async fn one(
    session: &Session,
    service: &mut Service,
    approval: &str,
    root: &ObjectRef,
    digest: &str,
) -> Result<(), Problem> {
    let (cascade, approvals) =
        chosen(&known(&mut service.admin).await?, root, Some(digest)).map_err(Problem::Refused)?;
    let id = guard_id(approval).filter(|id| id.kind == GuardKind::Approval);
    let Some(id) = id.filter(|id| approvals.iter().any(|name| *name == *id.name)) else {
        return Err(Problem::Refused(format!(
            "{} does not wait for {approval:?}, but for {}; nothing was approved",
            shown(root),
            approvals.join(", ")
        )));
    };
    give(session, &id, &cascade, LIFETIME, &reviews::user(session).await).await
}

/// The address of the root. The object may be deleted already, so it is not read.
async fn address(session: &Session, words: &[String]) -> Result<ObjectRef, Problem> {
    let pairs = pairs(words).map_err(Problem::sentence)?;
    let [(of, name)] = pairs.as_slice() else {
        return Err(Problem::sentence("name exactly one root"));
    };
    let catalogue = Catalogue::ask(session).await?;
    let served = catalogue.find(of).map_err(Problem::sentence)?;
    let namespace = if served.namespaced { session.namespace().to_owned() } else { String::new() };
    let (group, kind) = (served.group.clone(), served.kind.clone());
    Ok(ObjectRef { group, kind, namespace, name: name.clone(), ..ObjectRef::default() })
}

/// The cascade that waits with this root, and the Approvals that it waits for. The error is a sentence.
fn chosen(guards: &[Guard], wanted: &ObjectRef, digest: Option<&str>) -> Result<Waiting, String> {
    let is_it = |cascade: &Cascade| {
        let root = root(cascade);
        (&root.group, &root.kind, &root.namespace, &root.name)
            == (&wanted.group, &wanted.kind, &wanted.namespace, &wanted.name)
    };
    let mut found: Vec<Waiting> = waiting(guards).into_iter().filter(|(cascade, _)| is_it(cascade)).collect();
    let what = shown(wanted);
    if found.is_empty() {
        let accepted = |guard: &&Guard| guard.approval.iter().flat_map(|approval| &approval.accepted).any(is_it);
        return Err(match guards.iter().find(accepted) {
            Some(guard) => format!("the cascade of {what} is approved already, by {}", guard.name),
            None => {
                format!("no cascade of {what} waits for an approval; {} approve lists those that wait", command())
            }
        });
    }
    match digest {
        Some(digest) => {
            let at = found.iter().position(|(cascade, _)| cascade.digest == digest);
            match at {
                Some(at) => Ok(found.swap_remove(at)),
                None => {
                    let now: Vec<String> =
                        found.iter().map(|(cascade, _)| format!("{} ({})", cascade.digest, extent(cascade))).collect();
                    Err(format!(
                        "the cascade of {what} has changed: its digest is {}, not {digest}; nothing was approved",
                        now.join(" or ")
                    ))
                }
            }
        }
        None if found.len() == 1 => Ok(found.swap_remove(0)),
        None => Err(format!(
            "{} cascades wait whose root had the name {what}; give the --digest of one: {} approve lists them",
            found.len(),
            command()
        )),
    }
}

/// Writes the approval. Another writer may change the list at the same time.
async fn give(session: &Session, id: &GuardId, cascade: &Cascade, lasts: Duration, by: &str) -> Result<(), Problem> {
    let mut changed = String::new();
    for _ in 0..ATTEMPTS_MAX {
        let read = store::read(session, id).await?;
        let (root, digest) = (root(cascade), cascade.digest.clone());
        let consent = Consent { root, digest, until: read.now + lasts, by: by.to_owned() };
        let patch = patches::approve(&read.object, &consent, read.now).map_err(Problem::Refused)?;
        match store::patch(session, id, &patch).await? {
            Patched::Done => return Ok(()),
            Patched::Changed(why) => changed = why,
        }
    }
    Err(Problem::Refused(format!("{id} was not changed: others change it too; try again ({changed})")))
}

fn list(session: &Session, guards: &[Guard]) -> Answered {
    let mut waiting = waiting(guards);
    if session.namespace_is_given() && session.searched().is_some() {
        waiting.retain(|(cascade, _)| root(cascade).namespace == session.namespace());
    }
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document(&waiting)?)?,
        Format::Name => {
            session.print(&lines_by_type(waiting.iter().map(|(cascade, _)| cascade.root.as_ref())))?;
        }
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
            if waiting.is_empty() {
                session.note(&nothing(session));
            } else {
                session.print_table(&table(&waiting))?;
            }
            if let Some((cascade, _)) = waiting.first() {
                session.note(&format!("approve one, such as: {}", approval_of(cascade)));
            }
            let exceeded = guards.iter().filter(|guard| guard.budget.is_some_and(|budget| budget.exceeded));
            for id in exceeded.filter_map(|guard| guard_id(&guard.name)) {
                session.note(&format!("{id} is exceeded; {} approve {id} begins a new window", command()));
            }
        }
    }
    Ok(Ending::Fine)
}

fn nothing(session: &Session) -> String {
    let place = if session.namespace_is_given() { format!(" {}", session.where_searched()) } else { String::new() };
    format!("no cascade waits for an approval{place}")
}

fn table(waiting: &[Waiting]) -> String {
    let cells = |(cascade, approvals): &Waiting| {
        let root = root(cascade);
        let more = if cascade.complete { "" } else { "+" };
        vec![
            Cell::plain(root.namespace.as_str()),
            Cell::bold(by_type(&root)),
            Cell::plain(format!("{}{more}", cascade.objects)),
            Cell::plain(totals(cascade)),
            Cell::plain(cascade.digest.as_str()),
            Cell::plain(approvals.join(",")),
        ]
    };
    let heads = ["NAMESPACE", "ROOT", "OBJECTS", "KINDS", "DIGEST", "APPROVAL"];
    columns(&heads, &waiting.iter().map(cells).collect::<Vec<_>>())
}

fn document(waiting: &[Waiting]) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let mut items = Vec::new();
    for (cascade, approvals) in waiting {
        let mut item = schema.message("ownergraph.admin.v1beta1.Cascade", cascade)?;
        item["approvals"] = json!(approvals);
        items.push(item);
    }
    Ok(Document::list(Kind::CascadeList, items.into()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{approvals, cascade};
    use super::*;

    /// The address of a root, as the command line gives it.
    fn wanted(name: &str) -> ObjectRef {
        let root = root(&cascade(name, "", ""));
        ObjectRef { resource: String::new(), ..root }
    }

    #[test]
    fn cascades_that_wait_are_listed_with_their_digests() {
        let waiting = waiting(&approvals());
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&waiting)).to_string());
        let told = document(&waiting).unwrap().with_incomplete(&[]);
        assert_eq!(told["items"][0]["approvals"], json!(["large", "claims"]));
        assert_eq!(told["items"][0]["digest"], "00000000000000ff");
    }

    #[test]
    fn only_the_cascade_that_was_shown_is_approved() {
        let guards = approvals();
        let (found, names) = chosen(&guards, &wanted("db"), Some("00000000000000ff")).unwrap();
        assert_eq!((root(&found).uid.as_str(), names), ("u-db", vec!["large".to_owned(), "claims".to_owned()]));
        assert!(chosen(&guards, &wanted("db"), None).is_ok());
        for (name, digest, why) in [
            (
                "db",
                Some("00000000000000fe"),
                "its digest is 00000000000000ff (12 objects: pods 8, persistentvolumeclaims 4), not 00000000000000fe",
            ),
            ("db", Some("ff"), "nothing was approved"),
            ("db", Some(""), "nothing was approved"),
            ("old", None, "is approved already, by approvals/large"),
            ("none", None, "waits for an approval; ownergraph approve lists those"),
            ("twice", None, "2 cascades wait whose root had the name Deployment shop/twice"),
        ] {
            let said = chosen(&guards, &wanted(name), digest).unwrap_err();
            assert!(said.contains(why), "{name} {digest:?}: {said}");
        }
        let second = chosen(&guards, &wanted("twice"), Some("0000000000000002")).unwrap();
        assert_eq!(root(&second.0).uid, "u-twice-2");
    }
}
