//! `pause`, `resume` and `crds`.

use super::columns::{Cell, columns};
use super::document::{Document, Kind, Schema};
use super::ending::{Answered, Ending, Problem, note};
use super::flags::{Asking, Format, Pause, Resume, ScopeFlags};
use super::guards::scope;
use super::naming::Catalogue;
use super::printer::Printer;
use super::session::Session;
use super::way;
use crate::failure::Failure;
use crate::remote::{self, Admin};
use anyhow::Context as _;
use engine::scope::{Filter, Scope};
use proto::admin::v1beta1 as wire;
use proto::admin::v1beta1::{PauseCollectionRequest, ResumeCollectionRequest};
use proto::convert::{LIFETIME_MAX, PAUSE_PREFIX, PauseOrder};
use proto::r#type::v1beta1::{ObjectFilter, ReplicaRole, ResponseMeta};
use runtime::visible;
use serde_json::json;
use std::io::{self, Write as _};
use std::time::Duration;
use tokio::time::{Instant, interval};
use uuid::Uuid;

const FORMATS: [Format; 4] = [Format::Table, Format::Json, Format::Yaml, Format::Name];
/// The definitions of guards, for `kubectl apply`.
const DEFINITIONS: [&str; 5] = [
    include_str!("../../../deploy/crds/pauses.yaml"),
    include_str!("../../../deploy/crds/protections.yaml"),
    include_str!("../../../deploy/crds/budgets.yaml"),
    include_str!("../../../deploy/crds/approvals.yaml"),
    include_str!("../../../deploy/crds/gates.yaml"),
];
/// Interval of checks whether a pause is effective.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Prints the definitions of our resources.
pub(super) fn crds() -> Answered {
    io::stdout().write_all(DEFINITIONS.join("---\n").as_bytes())?;
    Ok(Ending::Fine)
}

/// Creates a pause, and prints its state.
pub(super) async fn pause(flags: Pause) -> Answered {
    let printer = Printer::of(flags.output.clone(), &FORMATS)?;
    let Pause { connection, output, .. } = flags.clone();
    let asking = Asking { namespace: None, all_namespaces: false, connection, output };
    let scope = if flags.scope.owner.is_some() {
        let mut session = Session::open(asking.clone(), &FORMATS).await?;
        flags.scope.resolve(&mut session).await?
    } else {
        flags.scope.whole_names()?;
        scope::Scope::default()
    };
    let filter = if flags.all { None } else { Some(flags.scope.filter(&scope)) };
    let order = order(filter, flags.lifetime, flags.reason)?;
    let way = way(flags.connection).await?;
    let mut admin = Admin::new(way.any().await?);
    let (mut pause, meta) = match way.first(begin(&mut admin, &order).await) {
        Ok(begun) => begun,
        Err(failure) => return Err(suggested(&flags.scope, asking).await.unwrap_or(failure.into())),
    };
    // Only the leader knows whether the pause is in effect. A repeated request with the same id returns the same pause.
    if meta.role() != ReplicaRole::Leader
        && let Some(mut leader) = way.at(&meta.leader_endpoint).await.map(Admin::new)
        && let Ok((known, _)) = press(&mut leader, &order).await
    {
        (admin, pause) = (leader, known);
    }
    let pause = match flags.wait {
        Some(wait) => effective(&mut admin, pause, wait).await?,
        None => pause,
    };
    show(&pause, &printer)?;
    Ok(Ending::Fine)
}

/// The error about a kind that the API server does not serve, with a kind of a similar name.
async fn suggested(scope: &ScopeFlags, asking: Asking) -> Option<Problem> {
    if scope.kind.is_empty() {
        return None;
    }
    let session = Session::open(asking, &FORMATS).await.ok()?;
    scope.kinds(&Catalogue::ask(&session).await.ok()?).err()
}

/// Ends pauses early.
pub(super) async fn resume(flags: Resume) -> Answered {
    let way = way(flags.connection).await?;
    let mut admin = Admin::new(way.any().await?);
    let names = if flags.all {
        let pauses = way.first(remote::within(remote::pauses(&mut admin)).await)?;
        pauses.into_iter().filter(|pause| !pause.expired).map(|pause| pause.name).collect()
    } else {
        flags.names
    };
    if names.is_empty() {
        note("there are no pauses");
    }
    for name in names {
        let name = name.strip_prefix(PAUSE_PREFIX).unwrap_or(&name);
        let request = ResumeCollectionRequest { name: format!("{PAUSE_PREFIX}{name}") };
        way.first(remote::within(admin.resume_collection(request)).await)?;
        writeln!(io::stdout(), "{PAUSE_PREFIX}{} resumed", visible::line(name))?;
    }
    Ok(Ending::Fine)
}

/// Whether the pause has every condition of the order. A graph service of an earlier version ignores those that it does
/// not know.
fn says(order: &PauseOrder, pause: &wire::Pause) -> bool {
    let has = |wanted: &Filter| {
        let wanted = ObjectFilter::from(wanted.clone());
        pause.scope.iter().flat_map(|scope| &scope.targets).all(|target| {
            target.names == wanted.names
                && target.label_selector == wanted.label_selector
                && target.namespace_selector == wanted.namespace_selector
                && target.owner.is_some() == wanted.owner.is_some()
        })
    };
    let is_all = pause.scope.iter().all(|scope| scope.targets.is_empty());
    order.scope.targets.iter().all(has) && is_all == order.scope.targets.is_empty()
}

/// An order for a pause. Without a filter, of everything.
pub(super) fn order(filter: Option<Filter>, lifetime: Duration, reason: String) -> Result<PauseOrder, Failure> {
    if lifetime > LIFETIME_MAX || lifetime.subsec_nanos() != 0 {
        return Err(Failure::Usage(format!(
            "--for must be a whole number of seconds from 1s to 24h, not {lifetime:?}"
        )));
    }
    let mut targets: Vec<Filter> = filter.into_iter().collect();
    for requirements in targets.iter_mut().flat_map(|filter| [&mut filter.marks, &mut filter.namespace_marks]) {
        requirements.sort_unstable();
        requirements.dedup();
    }
    Ok(PauseOrder { scope: Scope { targets }, reason, lifetime, request_id: Uuid::new_v4().to_string() })
}

/// Creates a pause. One that lacks a condition of the order is ended again.
pub(super) async fn begin(admin: &mut Admin, order: &PauseOrder) -> Result<(wire::Pause, ResponseMeta), Failure> {
    let (pause, meta) = press(admin, order).await?;
    if !says(order, &pause) {
        let request = ResumeCollectionRequest { name: pause.name.clone() };
        remote::within(admin.resume_collection(request)).await?;
        return Err(Failure::Other(anyhow::anyhow!(
            "the graph service does not support all of these scope conditions; pause {} had a different scope and was deleted; use a graph service of the same version as this command",
            visible::line(&pause.name)
        )));
    }
    Ok((pause, meta))
}

async fn press(admin: &mut Admin, order: &PauseOrder) -> Result<(wire::Pause, ResponseMeta), Failure> {
    let answer = remote::within(admin.pause_collection(PauseCollectionRequest::from(order.clone()))).await?;
    let pause = answer.pause.context("the answer of the graph service has no pause")?;
    Ok((pause, answer.meta.unwrap_or_default()))
}

/// Waits until the pause is effective.
async fn effective(admin: &mut Admin, mut pause: wire::Pause, wait: Duration) -> Result<wire::Pause, Failure> {
    let by = Instant::now() + wait;
    let mut looks = interval(LOOK_EVERY);
    while !pause.effective {
        looks.tick().await;
        let pauses = remote::within(remote::pauses(admin)).await?;
        let known = pauses.into_iter().find(|known| known.name == pause.name && !known.expired);
        pause = known.with_context(|| format!("{} ended before it was effective", pause.name))?;
        if !pause.effective && Instant::now() >= by {
            let sentence = format!("{} is not effective within {wait:?}: {}", pause.name, pause.pending);
            return Err(Failure::TimedOut(sentence));
        }
    }
    Ok(pause)
}

fn show(pause: &wire::Pause, printer: &Printer) -> Result<(), Problem> {
    match printer.format {
        Format::Json | Format::Yaml => return printer.print_document(document(pause)?, &[]),
        Format::Name => return printer.print(&format!("{}\n", visible::line(&pause.name))),
        Format::Table | Format::Wide | Format::Tree | Format::Dot | Format::Mermaid | Format::Html | Format::Ndjson => {
        }
    }
    printer.print_table(&table(std::slice::from_ref(pause)))?;
    if !pause.pending.is_empty() {
        note(&format!("not effective yet: {}", pause.pending));
    }
    Ok(())
}

/// A pause in the form of its resource. The status has the data that only the leader knows.
fn document(pause: &wire::Pause) -> Result<Document, Problem> {
    let schema = Schema::load()?;
    let scope =
        pause.scope.as_ref().map(|scope| schema.message("ownergraph.admin.v1beta1.Scope", scope)).transpose()?;
    let seconds = |of: &Option<prost_types::Timestamp>| of.as_ref().map_or(0, |at| at.seconds);
    let time = |of: &Option<prost_types::Timestamp>| of.as_ref().map(ToString::to_string);
    let lifetime = seconds(&pause.expire_time) - seconds(&pause.create_time);
    let status = json!({
        "state": state(pause),
        "expireTime": time(&pause.expire_time),
        "message": format!("{}{}", pause.pending, pause.problem),
        "heldItems": pause.held_items,
        "oldSessionsRemaining": pause.old_sessions_remaining,
        "actor": pause.actor,
    });
    Ok(Document::new(Kind::Pause)
        .with("metadata", json!({ "name": name(pause), "creationTimestamp": time(&pause.create_time) }))
        .with("spec", json!({ "reason": pause.reason, "lifetimeSeconds": lifetime, "scope": scope }))
        .with("status", status))
}

fn name(pause: &wire::Pause) -> &str {
    pause.name.strip_prefix(PAUSE_PREFIX).unwrap_or(&pause.name)
}

fn state(pause: &wire::Pause) -> &'static str {
    match (pause.expired, pause.effective) {
        (true, _) => "Expired",
        (false, true) => "Effective",
        (false, false) => "Pending",
    }
}

/// The pauses as lines, with a heading.
pub(super) fn table(pauses: &[wire::Pause]) -> String {
    let cells = |pause: &wire::Pause| {
        let by = if pause.actor.is_empty() { String::new() } else { format!(" ({})", pause.actor) };
        [
            name(pause).to_owned(),
            scope_words(pause),
            state(pause).to_lowercase(),
            pause.held_items.to_string(),
            pause.expire_time.as_ref().map(ToString::to_string).unwrap_or_default(),
            format!("{}{by}", pause.reason),
        ]
        .map(Cell::plain)
        .to_vec()
    };
    let heads = ["NAME", "SCOPE", "STATE", "HELD", "EXPIRES", "REASON"];
    columns(&heads, &pauses.iter().map(cells).collect::<Vec<_>>())
}

/// The whole scope, in words.
fn scope_words(pause: &wire::Pause) -> String {
    let words = |target: &ObjectFilter| match Filter::try_from(target.clone()) {
        Ok(filter) => filter.to_string(),
        Err(why) => format!("conditions that this version does not know ({why})"),
    };
    let mut targets: Vec<String> = pause.scope.iter().flat_map(|scope| &scope.targets).map(words).collect();
    if pause.omitted_targets > 0 {
        targets.push(format!("and {} more", pause.omitted_targets));
    }
    if targets.is_empty() { "everything".to_owned() } else { targets.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::selector::requirements;
    use proto::admin::v1beta1::Scope;
    use proto::r#type::v1beta1::{GroupResource, OwnerScope};

    fn pauses() -> [wire::Pause; 2] {
        let target = ObjectFilter {
            resources: vec![
                GroupResource { group: "apps".to_owned(), resource: "deployments".to_owned() },
                GroupResource { group: String::new(), resource: "pods".to_owned() },
            ],
            namespaces: vec!["shop".to_owned()],
            ..ObjectFilter::default()
        };
        let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        [
            wire::Pause {
                name: "pauses/a".to_owned(),
                reason: "one\ntwo".to_owned(),
                effective: true,
                ..wire::Pause::default()
            },
            wire::Pause {
                name: "pauses/longer".to_owned(),
                scope: Some(Scope { targets: vec![target] }),
                create_time: at(60),
                expire_time: at(3660),
                held_items: 12,
                ..wire::Pause::default()
            },
        ]
    }

    #[test]
    fn pauses_stand_in_columns() {
        insta::assert_snapshot!(anstream::adapter::strip_str(&table(&pauses())).to_string(), @r"
        NAME    SCOPE                          STATE      HELD  EXPIRES               REASON
        a       everything                     effective  0     -                     one\ntwo
        longer  deployments.apps,pods in shop  pending    12    1970-01-01T01:01:00Z  -
        ");
    }

    /// A pause whose scope has every condition.
    fn narrow() -> (PauseOrder, wire::Pause) {
        let scope = ScopeFlags {
            kind: vec![graph_service::options::kind_name("pods").unwrap()],
            namespace: vec!["shop".to_owned()],
            names: vec!["a".to_owned(), "b".to_owned()],
            selector: Some(requirements("tier!=cache,app=web,canary").unwrap()),
            namespace_selector: Some(requirements("env in (a,b)").unwrap()),
            owner: None,
        };
        let mut target = scope.filter(&scope::Scope::default());
        target.marks.sort_unstable();
        target.owner = Some(engine::scope::OwnerScope {
            resource: engine::object::GroupResource { group: "apps".into(), resource: "deployments".into() },
            namespace: "shop".into(),
            name: "web".into(),
            uid: None,
        });
        let scope = engine::scope::Scope { targets: vec![target] };
        let order = PauseOrder {
            scope: scope.clone(),
            reason: "why".to_owned(),
            lifetime: Duration::from_secs(60),
            request_id: String::new(),
        };
        (order, wire::Pause { name: "pauses/narrow".to_owned(), scope: Some(scope.into()), ..wire::Pause::default() })
    }

    #[test]
    fn the_scope_of_a_pause_is_told_in_full() {
        let (_, pause) = narrow();
        assert_eq!(
            scope_words(&pause),
            "pods in shop named a,b with app=web, canary, tier!=cache in namespaces with env in (a,b) below deployments.apps shop/web"
        );
        let told = document(&pause).unwrap().with_incomplete(&[]);
        let target = &told["spec"]["scope"]["targets"][0];
        assert_eq!(target["labelSelector"]["matchLabels"], json!({ "app": "web" }));
        assert_eq!(
            target["labelSelector"]["matchExpressions"][1],
            json!({ "key": "tier", "operator": "NotIn", "values": ["cache"] })
        );
        assert_eq!((&target["names"], &target["owner"]["name"]), (&json!(["a", "b"]), &json!("web")));
        let cut = wire::Pause { omitted_targets: 2, ..pause };
        assert!(scope_words(&cut).ends_with("; and 2 more"));
    }

    #[test]
    fn a_pause_without_a_condition_of_the_order_is_noticed() {
        let (order, pause) = narrow();
        assert!(says(&order, &pause));
        let edits: [fn(&mut ObjectFilter); 4] = [
            |target| target.names.clear(),
            |target| target.label_selector = None,
            |target| target.namespace_selector = None,
            |target| target.owner = None::<OwnerScope>,
        ];
        for edit in edits {
            let mut wider = pause.clone();
            wider.scope.iter_mut().flat_map(|scope| &mut scope.targets).for_each(edit);
            assert!(!says(&order, &wider), "{wider:?}");
        }
        assert!(!says(&order, &wire::Pause { scope: None, ..pause }));
    }

    #[test]
    fn a_pause_is_told_as_the_resource_that_it_is() {
        let told = document(&pauses()[1]).unwrap().with_incomplete(&[]);
        assert_eq!(told["metadata"]["name"], "longer");
        assert_eq!(told["spec"]["lifetimeSeconds"], 3600);
        assert_eq!(told["spec"]["scope"]["targets"][0]["namespaces"], json!(["shop"]));
        assert_eq!((&told["status"]["state"], &told["status"]["incomplete"]), (&json!("Pending"), &json!([])));
    }
}
