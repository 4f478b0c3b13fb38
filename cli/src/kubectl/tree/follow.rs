//! `tree -w`: the tree, and then its changes.

use super::show;
use super::table::{collecting, name};
use crate::kubectl::document::{self, Document, Kind, Schema};
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{Format, Tree};
use crate::kubectl::questions::{answered, problem};
use crate::kubectl::service::Service;
use crate::kubectl::session::Session;
use proto::graph::v1beta1::WatchDependentsRequest;
use proto::graph::v1beta1::watch_dependents_response::{Change, ChangeType, Event};
use proto::r#type::v1beta1::ObjectRef;
use runtime::visible;
use std::io::{IsTerminal as _, stdout};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Without a change or a bookmark for this time, the connection counts as dead.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// The delay before an ended stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);
const CHANGE: &str = "ownergraph.graph.v1beta1.WatchDependentsResponse.Change";

/// Follows changes until the command is interrupted.
pub(super) async fn follow(
    session: &mut Session,
    service: &mut Service,
    root: &ObjectRef,
    flags: &Tree,
) -> Result<(), Problem> {
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    let redraws = stdout().is_terminal() && session.format != Format::Ndjson;
    let (mut resume_token, mut complete) = (Vec::new(), false);
    loop {
        let request = WatchDependentsRequest {
            r#ref: Some(root.clone()),
            max_depth: flags.walk.depth,
            resume_token: resume_token.clone(),
            ..Default::default()
        };
        let mut stream = answered(service.within, service.graph.watch_dependents(request)).await?;
        let again = loop {
            let message = tokio::select! {
                biased;
                _ = &mut stop => return Ok(()),
                message = timeout(QUIET_MAX, stream.message()) => message,
            };
            let message =
                message.map_err(|_| Problem::TimedOut(format!("no change and no bookmark within {QUIET_MAX:?}")))?;
            let Some(message) = message.map_err(problem)? else { break AGAIN };
            if !message.resume_token.is_empty() {
                resume_token = message.resume_token;
            }
            match message.event {
                Some(Event::Batch(batch)) if complete && redraws => {
                    if !batch.more {
                        session.clear()?;
                        show(session, service, root, flags).await?;
                    }
                }
                Some(Event::Batch(batch)) if complete => session.print(&lines(session, &batch.changes)?)?,
                Some(Event::Batch(_)) | None => {}
                Some(Event::Bookmark(bookmark)) if bookmark.snapshot_complete && !complete => {
                    complete = true;
                    show(session, service, root, flags).await?;
                }
                Some(Event::Bookmark(_)) => {}
                Some(Event::Reset(reset)) => {
                    session.note(&format!("started again: {}", reset.reason));
                    complete = false;
                }
                Some(Event::GoingAway(going)) => {
                    let after = going.reconnect_after.and_then(|after| Duration::try_from(after).ok());
                    break after.unwrap_or_default().min(QUIET_MAX);
                }
            }
        };
        tokio::select! {
            biased;
            _ = &mut stop => return Ok(()),
            () = sleep(again) => {}
        }
    }
}

fn lines(session: &Session, changes: &[Change]) -> Result<String, Problem> {
    if session.format == Format::Ndjson {
        let schema = Schema::load()?;
        let value = |change: &Change| {
            let change = schema.message(CHANGE, change)?;
            Ok(document::line(&Document::new(Kind::TreeChange).with("change", change).item()))
        };
        return changes.iter().map(value).collect();
    }
    Ok(changes.iter().map(line).collect())
}

fn line(change: &Change) -> String {
    let node = change.node.clone().unwrap_or_default();
    let object = node.r#ref.clone().unwrap_or_default();
    let what = match change.r#type() {
        ChangeType::Unspecified | ChangeType::Present => "is",
        ChangeType::Added => "added",
        ChangeType::Changed => "changed",
        ChangeType::Removed => "removed",
    };
    let row = format!("{what:<8} {:<20} {}  {}", object.namespace, name(&object), collecting(&node));
    format!("{}\n", visible::line(&row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::graph::v1beta1::{Node, NodeState};

    #[test]
    fn a_change_is_a_line() {
        let object = ObjectRef { kind: "Pod".into(), namespace: "shop".into(), name: "a".into(), ..Default::default() };
        let node = Node { r#ref: Some(object), state: NodeState::Terminating.into(), ..Default::default() };
        let change = Change { r#type: ChangeType::Changed.into(), node: Some(node), ..Default::default() };
        assert_eq!(line(&change), "changed  shop                 Pod/a  deleting\n");
    }
}
