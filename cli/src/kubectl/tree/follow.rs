//! `tree -w`: the tree, and then its changes.

use super::show;
use super::table::{collecting, name};
use crate::kubectl::document::{self, Document, Kind, Schema};
use crate::kubectl::ending::Problem;
use crate::kubectl::flags::{Format, Tree};
use crate::kubectl::naming::shown;
use crate::kubectl::questions::answered;
use crate::kubectl::service::{Need, Service, note_once};
use crate::kubectl::session::Session;
use proto::graph::v1beta1::WatchDependentsRequest;
use proto::graph::v1beta1::watch_dependents_response::{Change, ChangeType, Event};
use proto::r#type::v1beta1::{GroupResource, ObjectRef};
use runtime::visible;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdout};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Without a change or a bookmark for this time, the connection counts as dead.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// The delay before an ended stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);
const CHANGE: &str = "ownergraph.graph.v1beta1.WatchDependentsResponse.Change";

/// Interval of bookmarks. The removal of the object itself is no change of its dependents, so it is looked for at each
/// bookmark.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Follows changes until the object and all its dependents are gone, or the command is interrupted.
pub(super) async fn follow(
    session: &mut Session,
    service: &mut Service,
    root: &ObjectRef,
    flags: &Tree,
) -> Result<(), Problem> {
    let mut followed = Followed {
        root,
        flags,
        redraws: stdout().is_terminal() && session.format != Format::Ndjson,
        resume_token: Vec::new(),
        complete: false,
        was_shown: false,
        known: Known::default(),
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => Ok(()),
        ended = followed.until_gone(session, service) => ended,
    }
}

/// An object that is followed.
struct Followed<'f> {
    root: &'f ObjectRef,
    flags: &'f Tree,
    redraws: bool,
    resume_token: Vec<u8>,
    /// All dependents that there were at the start of the stream are known.
    complete: bool,
    was_shown: bool,
    known: Known,
}

impl Followed<'_> {
    async fn until_gone(&mut self, session: &mut Session, service: &mut Service) -> Result<(), Problem> {
        loop {
            match self.watch(session, service).await {
                Ok(Some(pause)) => sleep(pause).await,
                Ok(None) => return ended(session, self.root, self.redraws),
                Err(problem) if !self.was_shown || service.is_direct() || problem.is_unwritten() => {
                    return Err(problem);
                }
                Err(problem) => {
                    note_once(format!("{problem}; connecting again"));
                    sleep(AGAIN).await;
                    if let Ok(again) = Service::connect(session, Need::Replica).await {
                        *service = again;
                    }
                }
            }
        }
    }

    /// Whether the object is gone. A graph that has just started may not have listed it yet.
    async fn is_gone(&self, service: &mut Service) -> Result<bool, Problem> {
        let is_its = |of: &GroupResource| (&of.group, &of.resource) == (&self.root.group, &self.root.resource);
        Ok(!service.has(self.root).await? && service.covered().await?.iter().any(is_its))
    }

    /// One stream, to its end. Returns the pause before the next one, or `None` if nothing is left to follow.
    async fn watch(&mut self, session: &mut Session, service: &mut Service) -> Result<Option<Duration>, Problem> {
        let request = WatchDependentsRequest {
            r#ref: Some(self.root.clone()),
            max_depth: self.flags.walk.depth,
            resume_token: self.resume_token.clone(),
            bookmark_interval: prost_types::Duration::try_from(LOOK_EVERY).ok(),
            ..Default::default()
        };
        let opened = answered(service.within, service.graph.watch_dependents(request)).await;
        if opened.is_err() && self.is_gone(service).await? {
            return Ok(None);
        }
        let mut stream = opened?;
        loop {
            let message = timeout(QUIET_MAX, stream.message()).await;
            let message =
                message.map_err(|_| Problem::TimedOut(format!("no change and no bookmark within {QUIET_MAX:?}")))?;
            let Some(message) = message? else { return Ok(Some(AGAIN)) };
            if !message.resume_token.is_empty() {
                self.resume_token = message.resume_token;
            }
            match message.event {
                Some(Event::Batch(batch)) => {
                    let changes = self.known.take(batch.changes);
                    // An owner that is gone is still drawn while references to it are known.
                    if self.complete && self.redraws && !batch.more && service.get(self.root).await?.is_some() {
                        session.clear()?;
                        show(session, service, self.root, self.flags).await?;
                    } else if self.complete && !self.redraws {
                        session.print(&lines(session, &changes)?)?;
                    }
                }
                None => {}
                Some(Event::Bookmark(bookmark)) if bookmark.snapshot_complete && !self.complete => {
                    self.complete = true;
                    show(session, service, self.root, self.flags).await?;
                    self.was_shown = true;
                }
                Some(Event::Bookmark(_)) => {}
                Some(Event::Reset(reset)) => {
                    session.note(&format!("started again: {}", reset.reason));
                    (self.complete, self.known) = (false, Known::default());
                }
                Some(Event::GoingAway(going)) => {
                    let after = going.reconnect_after.and_then(|after| Duration::try_from(after).ok());
                    return Ok(Some(after.unwrap_or_default().min(QUIET_MAX)));
                }
            }
            if self.complete && self.known.0.is_empty() && self.is_gone(service).await? {
                return Ok(None);
            }
        }
    }
}

/// The dependents that are there, each with the last word that was printed for it.
#[derive(Debug, Default)]
struct Known(BTreeMap<String, String>);

impl Known {
    /// The changes that change a line.
    fn take(&mut self, changes: Vec<Change>) -> Vec<Change> {
        let is_news = |change: &Change| {
            let node = change.node.clone().unwrap_or_default();
            let (uid, word) = (node.r#ref.clone().unwrap_or_default().uid, collecting(&node));
            match change.r#type() {
                ChangeType::Removed => self.0.remove(&uid).is_some(),
                ChangeType::Unspecified | ChangeType::Present | ChangeType::Added | ChangeType::Changed => {
                    self.0.insert(uid, word.clone()).as_ref() != Some(&word)
                }
            }
        };
        changes.into_iter().filter(is_news).collect()
    }
}

/// Prints that nothing is left to follow.
fn ended(session: &Session, root: &ObjectRef, redraws: bool) -> Result<(), Problem> {
    if redraws {
        session.clear()?;
    }
    session.note(&format!("{} is gone, and no dependent of it is left", shown(root)));
    Ok(())
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
        let mut known = Known::default();
        let removed = Change { r#type: ChangeType::Removed.into(), ..change.clone() };
        let news = [&change, &change, &removed, &removed].map(|change| known.take(vec![change.clone()]).len());
        assert_eq!((news, known.0.len()), ([1, 0, 1, 0], 0), "what is the same as before is no news");
    }
}
