//! `delete`: deletes exactly the targets of a plan, or nothing. The digest identifies the plan. At a terminal, the user
//! confirms the plan that was just shown.
//!
//! The targets are read, then planned on a graph as fresh as the API server, then deleted with the uid and version that
//! were read as preconditions. A change before the plan changes its digest. A change of a target after the plan fails
//! the precondition.

use super::confirm::confirmed;
use super::ending::{Answered, Ending, Problem};
use super::flags::{Cascade, Delete, Format};
use super::naming::{Found, Named, by_type, read, refusal, shown};
use super::service::{Need, Service};
use super::session::Session;
use super::{plan, targets};
use crate::name::command;
use anyhow::Context as _;
use http::{Method, StatusCode};
use kube_api::{call, media, request};
use proto::graph::v1beta1::PreviewDeletionResponse;
use runtime::visible::line;
use serde_json::json;
use std::io::{self, IsTerminal as _};
use std::time::Duration;
use tokio::time::{Instant, interval};

const ANSWER_MAX_BYTES: usize = 16 << 20;
/// Interval of reads of --wait.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(flags: Delete) -> Answered {
    let at_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if flags.confirm.is_none() && !at_terminal {
        return Err(Problem::sentence(format!(
            "stdin is not a terminal: give --confirm=DIGEST with the digest that {} plan delete prints",
            command()
        )));
    }
    let names_only = flags.asking.output.form.is_some();
    let mut session = Session::open(flags.asking, &[Format::Name]).await?;
    let mut named = targets::resolve(&mut session, &flags.targets).await?;
    if named.is_empty() {
        let nowhere = session.where_searched();
        return Err(Problem::Refused(format!("no object matches {nowhere}; nothing was deleted")));
    }
    let mut service = Service::connect(&mut session, Need::Service).await?;
    let digest = match flags.confirm {
        Some(digest) => digest,
        None => {
            there(&named)?;
            let plan = certain_here(&mut service, &named, flags.targets.cascade).await?;
            let (question, word) = question(&named);
            let asked = (!flags.yes).then_some((question.as_str(), word.as_str()));
            let text = format!("{}{}", plan::text(&plan, &named, flags.targets.cascade), plan::approvals(&plan));
            confirmed(&text, asked, "nothing was deleted")?;
            // The cluster may have changed while the user read the plan.
            for object in &mut named {
                object.found = read(&session, object).await?;
            }
            plan.digest
        }
    };
    there(&named)?;
    let plan = certain_here(&mut service, &named, flags.targets.cascade).await?;
    if plan.digest != digest {
        return Err(Problem::Refused(format!(
            "the plan has changed: its digest is {}, not {digest}; nothing was deleted. {} plan delete {}{} --cascade={} shows the current plan",
            plan.digest,
            command(),
            flags.targets.words(&named),
            flags.targets.place(&session, &named),
            flags.targets.cascade.as_str()
        )));
    }
    carry_out(&session, &named, flags.targets.cascade, |object| {
        let done = if names_only { "" } else { " deleted" };
        session.print(&format!("{}{done}\n", by_type(&object.reference())))
    })
    .await?;
    if flags.wait {
        gone(&session, &named, flags.timeout).await?;
    }
    Ok(Ending::Fine)
}

/// Deletes the targets of a plan that holds. `told` is called after each deletion.
pub(super) async fn carry_out(
    session: &Session,
    named: &[Named],
    cascade: Cascade,
    mut told: impl FnMut(&Named) -> Result<(), Problem>,
) -> Result<(), Problem> {
    // Check that the API server accepts every deletion, before the first target is deleted.
    for dry_run in [true, false] {
        let mut done: Vec<String> = Vec::new();
        for object in named {
            if let Err(refusal) = delete(session, object, cascade, dry_run).await? {
                let what = shown(&object.reference());
                let before = if done.is_empty() {
                    "nothing was deleted".to_owned()
                } else {
                    format!("deleted before: {}", done.join(", "))
                };
                return Err(Problem::Refused(format!("{what} was not deleted: {refusal}; {before}")));
            }
            if !dry_run {
                done.push(shown(&object.reference()));
                told(object)?;
            }
        }
    }
    Ok(())
}

/// Waits until no target is there any more. An object of the same name that was created meanwhile is another one.
async fn gone(session: &Session, named: &[Named], limit: Duration) -> Result<(), Problem> {
    let by = Instant::now() + limit;
    let mut looks = interval(LOOK_EVERY);
    for object in named {
        loop {
            looks.tick().await;
            let is_there = match (read(session, object).await?, &object.found) {
                (Found::There { uid: now, .. }, Found::There { uid, .. }) => now == *uid,
                (Found::Absent, _) => false,
                (Found::There { .. }, Found::Absent | Found::Unreadable(_)) | (Found::Unreadable(_), _) => true,
            };
            if !is_there {
                break;
            }
            if Instant::now() >= by {
                let what = shown(&object.reference());
                return Err(Problem::TimedOut(format!(
                    "{what} is marked for deletion, and still there after {limit:?}"
                )));
            }
        }
    }
    Ok(())
}

/// Every target must still exist.
pub(super) fn there(named: &[Named]) -> Result<(), Problem> {
    if let Some(object) = named.iter().find(|object| object.found == Found::Absent) {
        let what = shown(&object.reference());
        return Err(Problem::Refused(format!("{what} does not exist; nothing was deleted")));
    }
    plan::present(named)
}

/// The plan, or an error if the effect on an object is in doubt.
pub(super) async fn certain(
    service: &mut Service,
    named: &[Named],
    cascade: Cascade,
) -> Result<PreviewDeletionResponse, Problem> {
    let plan = plan::ask(service, named, cascade).await?;
    undoubted(&plan, "")?;
    Ok(plan)
}

/// The same, and the error has the commands that release what is held.
async fn certain_here(
    service: &mut Service,
    named: &[Named],
    cascade: Cascade,
) -> Result<PreviewDeletionResponse, Problem> {
    let plan = plan::ask(service, named, cascade).await?;
    let waiting = service.waiting_for(plan::held_by(&plan)).await;
    let releases = plan::releases(&plan, &waiting).into_iter().map(|command| format!("; to release, run: {command}"));
    undoubted(&plan, &releases.collect::<String>())?;
    Ok(plan)
}

/// `next` says what to do about doubts.
fn undoubted(plan: &PreviewDeletionResponse, next: &str) -> Result<(), Problem> {
    let doubts = plan::doubts(plan);
    if doubts.is_empty() {
        return Ok(());
    }
    Err(Problem::Refused(format!("{}; nothing was deleted{next}", doubts.join("; "))))
}

/// The question for the name of the target, or for the number of targets, and the word that agrees.
fn question(named: &[Named]) -> (String, String) {
    let (what, word) = match named {
        [one] => (shown(&one.reference()), line(&one.name).into_owned()),
        all => (format!("these {} objects", all.len()), all.len().to_string()),
    };
    (format!("To delete {what} and the objects of the plan, type {word}: "), word)
}

/// Deletes a target. The inner error is the API server's refusal, which means that nothing was deleted.
async fn delete(
    session: &Session,
    object: &Named,
    cascade: Cascade,
    dry_run: bool,
) -> Result<Result<(), String>, Problem> {
    let Found::There { uid, resource_version } = &object.found else {
        return Ok(Err("the object was not read".to_owned()));
    };
    let mut options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": cascade,
        "preconditions": { "uid": uid, "resourceVersion": resource_version },
    });
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let request =
        request(Method::DELETE, &object.path(), media::JSON, &options).context("the name is not valid in a path")?;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, session.connection.request_timeout).await;
    let answer =
        answer.with_context(|| format!("it is not known whether {} was deleted", shown(&object.reference())))?;
    if answer.status.is_success() {
        return Ok(Ok(()));
    }
    let message = refusal(&answer);
    match answer.status {
        StatusCode::CONFLICT | StatusCode::NOT_FOUND => {
            Ok(Err(format!("the object has changed since the plan ({message})")))
        }
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            Err(Problem::sentence(format!("{} was not deleted: {message}", shown(&object.reference()))))
        }
        _ => Ok(Err(message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_asks_for_the_name_or_the_number() {
        let found = Found::There { uid: "u".into(), resource_version: "1".into() };
        let named = |name: &str| Named {
            served: super::super::naming::Served { kind: "Pod".into(), ..Default::default() },
            namespace: "shop".into(),
            name: name.into(),
            found: found.clone(),
        };
        let one = "To delete Pod shop/web and the objects of the plan, type web: ";
        assert_eq!(question(&[named("web")]), (one.to_owned(), "web".to_owned()));
        let two = "To delete these 2 objects and the objects of the plan, type 2: ";
        assert_eq!(question(&[named("web"), named("db")]), (two.to_owned(), "2".to_owned()));
    }
}
