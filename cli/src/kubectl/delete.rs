//! `delete --confirm`: exactly what a plan said, or nothing.
//!
//! The targets are read, then planned on a graph as fresh as the API server, then deleted under the uid and the version that were read. A
//! change before the plan changes its digest; one of a target after it fails the precondition.

use super::ending::{Answered, Ending, Problem};
use super::flags::{Cascade, Delete, Format};
use super::naming::{Found, Named, by_type, shown};
use super::service::{Need, Service};
use super::session::Session;
use super::{plan, targets};
use anyhow::Context as _;
use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use runtime::kubernetes::{call, parse_status};
use serde_json::json;

const ANSWER_MAX_BYTES: usize = 16 << 20;

pub(super) async fn run(flags: Delete) -> Answered {
    let mut session = Session::open(flags.asking, &[Format::Name]).await?;
    let named = targets::resolve(&mut session, &flags.targets).await?;
    if named.is_empty() {
        return Err(Problem::Refused("there is nothing that fits; nothing was deleted".to_owned()));
    }
    let gone = |object: &&Named| object.found == Found::Absent;
    if let Some(object) = named.iter().find(gone) {
        let what = shown(&object.reference());
        return Err(Problem::Refused(format!("{what} is not there any more; nothing was deleted")));
    }
    plan::present(&named)?;
    let mut service = Service::connect(&mut session, Need::Service).await?;
    let plan = plan::ask(&mut service, &named, flags.targets.cascade).await?;
    let doubts = plan::doubts(&plan);
    if !doubts.is_empty() {
        return Err(Problem::Refused(format!("{}; nothing was deleted", doubts.join("; "))));
    }
    if plan.digest != flags.confirm {
        return Err(Problem::Refused(format!(
            "the plan has changed: its digest is {}, not {}; nothing was deleted. kubectl ownergraph plan delete shows what it is now",
            plan.digest, flags.confirm
        )));
    }
    // What the API server would refuse for one target is to be known before another is deleted.
    for dry_run in [true, false] {
        let mut done: Vec<String> = Vec::new();
        for object in &named {
            if let Err(refusal) = delete(&session, object, flags.targets.cascade, dry_run).await? {
                let what = shown(&object.reference());
                let before = if done.is_empty() {
                    "nothing was deleted".to_owned()
                } else {
                    format!("deleted before: {}", done.join(", "))
                };
                return Err(Problem::Refused(format!("{what} is not deleted: {refusal}; {before}")));
            }
            if !dry_run {
                done.push(shown(&object.reference()));
                session.print(&format!("{} deleted\n", by_type(&object.reference())))?;
            }
        }
    }
    Ok(Ending::Fine)
}

/// The inner error is the API server's refusal, in words: certain not to have deleted anything.
async fn delete(
    session: &Session,
    object: &Named,
    cascade: Cascade,
    dry_run: bool,
) -> Result<Result<(), String>, Problem> {
    let Found::There { uid, resource_version } = &object.found else {
        return Ok(Err("it was not read".to_owned()));
    };
    let policy = match cascade {
        Cascade::Background => "Background",
        Cascade::Foreground => "Foreground",
        Cascade::Orphan => "Orphan",
    };
    let mut options = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy,
        "preconditions": { "uid": uid, "resourceVersion": resource_version },
    });
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    let request = Request::delete(object.path()).header(CONTENT_TYPE, "application/json");
    let request = request.body(options.to_string().into_bytes()).context("the name makes no path")?;
    let answer = call(&session.cluster.client, request, ANSWER_MAX_BYTES, session.connection.request_timeout).await;
    let answer = answer.with_context(|| format!("whether {} was deleted is not known", shown(&object.reference())))?;
    if answer.status.is_success() {
        return Ok(Ok(()));
    }
    let message = parse_status(&answer).map(|status| status.message).filter(|message| !message.is_empty());
    let message = message.unwrap_or_else(|| answer.status.to_string());
    match answer.status {
        StatusCode::CONFLICT | StatusCode::NOT_FOUND => Ok(Err(format!("it has changed since the plan ({message})"))),
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            Err(Problem::sentence(format!("{} is not deleted: {message}", shown(&object.reference()))))
        }
        _ => Ok(Err(message)),
    }
}
