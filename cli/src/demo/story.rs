//! The demo in acts. Each act deletes objects, follows the consequences, and waits for the last one.

use super::api::Api;
use super::narrate::Narrator;
use super::summary::{ActSummary, ratio};
use super::witness::Ledger;
use super::world::{Act, World};
use anyhow::{Context as _, bail};
use engine::coverage::State;
use engine::object::{GroupResource, Uid};
use futures::future::try_join_all;
use sandbox::Server;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, interval, timeout};

/// Maximum time from the start of the services until collections are synced and executors are connected.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Maximum time from the deletion to its last consequence, plus some time for each object.
const ACT_WITHIN: Duration = Duration::from_secs(30);
const ACT_WITHIN_PER_OBJECT: Duration = Duration::from_millis(20);
/// Time to wait for the API server's request counts. It updates them after it answers.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);
const COUNT_EVERY: Duration = Duration::from_millis(1);
/// Maximum number of objects in an error.
const NAMED_MAX: usize = 5;

/// The sources of the story.
pub(super) struct Story<'a> {
    pub(super) api: &'a Api,
    pub(super) server: &'a Server,
    pub(super) ledger: watch::Receiver<Ledger>,
    pub(super) narrator: &'a mut Narrator,
    /// The number of moments already printed.
    pub(super) told: usize,
}

impl Story<'_> {
    /// Waits until every collection is synced and every executor is connected.
    pub(super) async fn ready(&mut self, executors: usize, ignored: &[GroupResource]) -> anyhow::Result<()> {
        let started = Instant::now();
        let wanted: Vec<GroupResource> = self.server.with_model(|model| {
            let resources = model
                .types()
                .map(|of| GroupResource { group: of.group.as_str().into(), resource: of.plural.as_str().into() });
            resources.filter(|resource| !ignored.contains(resource)).collect()
        });
        let synced =
            |ledger: &Ledger, resource: &GroupResource| ledger.collections.get(resource) == Some(&State::Synced);
        let ready = self
            .ledger
            .wait_for(|ledger| ledger.executors >= executors && wanted.iter().all(|resource| synced(ledger, resource)));
        let waited = timeout(READY_WITHIN, ready).await.map(|seen| seen.map(drop));
        match waited {
            Ok(seen) => seen.context("the graph service has stopped")?,
            Err(_) => {
                let ledger = self.ledger.borrow();
                let missing = wanted.iter().filter(|resource| !synced(&ledger, resource)).map(ToString::to_string);
                bail!(
                    "the collector was not ready within {} s: {} of {executors} executors are connected; collections that are not synced: {}",
                    READY_WITHIN.as_secs(),
                    ledger.executors,
                    named(missing)
                );
            }
        }
        Ok(self.narrator.ready(wanted.len(), started.elapsed())?)
    }

    pub(super) async fn tell(&mut self, world: &World) -> anyhow::Result<Vec<ActSummary>> {
        let mut summaries = Vec::new();
        for (number, act) in world.acts.iter().enumerate() {
            let played = self.play(number + 1, act).await;
            summaries.push(played.with_context(|| format!("act {} ({})", number + 1, act.name))?);
        }
        Ok(summaries)
    }

    async fn play(&mut self, number: usize, act: &Act) -> anyhow::Result<ActSummary> {
        self.narrator.act(number, act)?;
        let requests_before = requests(self.server);
        let (proofs_before, gone_before) = {
            let ledger = self.ledger.borrow();
            (ledger.proofs, ledger.gone.len())
        };
        let goal = Goal::new(act, gone_before);
        let within = ACT_WITHIN + ACT_WITHIN_PER_OBJECT * u32::try_from(goal.gone.len()).unwrap_or(u32::MAX);
        let started = Instant::now();
        let followed = async {
            try_join_all(act.deleted.iter().map(|owner| self.api.delete(owner, act.policy))).await?;
            if act.big { self.count(&goal, act).await } else { self.follow(&goal, act).await }
        };
        match timeout(within, followed).await {
            Ok(followed) => followed?,
            Err(_) => {
                bail!("the act did not end within {} s: {}", within.as_secs(), goal.missing(&self.ledger.borrow(), act))
            }
        }
        let seconds = started.elapsed().as_secs_f64();

        let proofs = self.ledger.borrow().proofs - proofs_before;
        let handled = act.goes.len() + act.changes.len();
        let own = u64::try_from(act.deleted.len())?;
        let requests = self.answered(requests_before + own, u64::try_from(handled)?).await;
        let summary = ActSummary {
            name: act.name,
            deleted: act.deleted.len(),
            collected: act.goes.len(),
            changed: act.changes.len(),
            requests,
            requests_per_object: ratio(requests as f64, handled as f64),
            seconds: ratio(seconds, 1.0),
            objects_per_second: ratio(handled as f64, seconds),
        };
        self.narrator.act_done(&summary, proofs)?;
        Ok(summary)
    }

    /// Requests for single objects since their number was `before`. The API server counts a request just after its
    /// effect is visible. So the call waits up to [`COUNTED_WITHIN`] until there is one for each object.
    async fn answered(&self, before: u64, at_least: u64) -> u64 {
        let counted = async {
            let mut looks = interval(COUNT_EVERY);
            while requests(self.server) < before + at_least {
                looks.tick().await;
            }
        };
        // If the count stays too low, the printed number shows it.
        let _in_time = timeout(COUNTED_WITHIN, counted).await;
        requests(self.server).saturating_sub(before)
    }

    /// Prints every moment as it happens, until the goal is reached.
    async fn follow(&mut self, goal: &Goal, act: &Act) -> anyhow::Result<()> {
        loop {
            let (moments, reached) = {
                let told = self.told;
                let seen = self.ledger.wait_for(|ledger| ledger.moments.len() > told || goal.reached(ledger)).await;
                let ledger = seen.context("the graph service has stopped")?;
                (ledger.moments[told..].to_vec(), goal.reached(&ledger))
            };
            self.told += moments.len();
            for moment in &moments {
                self.narrator.moment(moment, act)?;
            }
            if reached {
                return Ok(());
            }
        }
    }

    /// Shows only numbers, until the goal is reached.
    async fn count(&mut self, goal: &Goal, act: &Act) -> anyhow::Result<()> {
        let mut progress = self.narrator.progress(act.goes.len());
        loop {
            let (gone, reached) = {
                self.ledger.changed().await.context("the graph service has stopped")?;
                let ledger = self.ledger.borrow_and_update();
                (ledger.gone.len() - goal.gone_before, goal.reached(&ledger))
            };
            self.narrator.advance(&mut progress, gone.saturating_sub(act.deleted.len()))?;
            if reached {
                return Ok(());
            }
        }
    }
}

/// The condition that ends an act.
struct Goal {
    gone: Vec<Uid>,
    changed: Vec<Uid>,
    gone_before: usize,
}

impl Goal {
    fn new(act: &Act, gone_before: usize) -> Goal {
        let uid = |thing: &super::api::Thing| Uid::parse(&thing.uid);
        Goal {
            gone: act.goes.iter().chain(&act.deleted).filter_map(uid).collect(),
            changed: act.changes.iter().filter_map(uid).collect(),
            gone_before,
        }
    }

    fn reached(&self, ledger: &Ledger) -> bool {
        // The count comes first, because it usually decides and it is cheap.
        ledger.gone.len() >= self.gone_before + self.gone.len()
            && self.gone.iter().all(|uid| ledger.gone.contains(uid))
            && self.changed.iter().all(|uid| ledger.changed.contains(uid))
    }

    fn missing(&self, ledger: &Ledger, act: &Act) -> String {
        let is_in =
            |set: &std::collections::BTreeSet<Uid>, uid: &str| Uid::parse(uid).is_some_and(|uid| set.contains(&uid));
        let there = act.deleted.iter().chain(&act.goes).filter(|thing| !is_in(&ledger.gone, &thing.uid));
        let unchanged = act.changes.iter().filter(|thing| !is_in(&ledger.changed, &thing.uid));
        let there = there.map(|thing| format!("{thing} is still there"));
        named(there.chain(unchanged.map(|thing| format!("{thing} still has its reference"))))
    }
}

/// The first few objects, and the number of further ones.
fn named(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let first = all[..all.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

/// Requests for single objects that the API server has answered: deletions, patches, and reads before them.
fn requests(server: &Server) -> u64 {
    count(server, |verb| !matches!(verb, "LIST" | "WATCH"))
}

/// Lists that the API server has answered: initial lists, and lists that prove absence or order events.
pub(super) fn lists(server: &Server) -> u64 {
    count(server, |verb| verb == "LIST")
}

fn count(server: &Server, verb: impl Fn(&str) -> bool) -> u64 {
    let counted = server.requests().into_iter().filter(|(of, _)| verb(of.verb) && !of.resource.is_empty());
    counted.map(|(_, count)| count).sum()
}
