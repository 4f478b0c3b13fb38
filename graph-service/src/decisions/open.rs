//! Finds the decisions that earlier leaders left open in the shared log, and gives them to the new leader.

use super::{DecisionLog, Missing};
use crate::clock::wire;
use crate::messages::Control;
use crate::messages::Leadership;
use engine::leader::{Input, LOGGED_MAX, Logged, LoggedStep};
use engine::work::Term;
use proto::convert::{Standing, counts, standing};
use proto::decision::v1beta1::{DecisionEvent, GetParityResponse, Phase, Position};
use runtime::clock::Clock;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// Number of events to read before other tasks get a turn.
const STEP: usize = 512;
/// Maximum wait of a new leader for its mirror to reach the end of the stream.
const READ_WITHIN: Duration = Duration::from_secs(20);

/// Gives each leader, once in its term, the decisions that earlier leaders left open. Runs until the process ends.
pub(crate) async fn hand_over(
    log: DecisionLog,
    mut leadership: watch::Receiver<Leadership>,
    control: mpsc::Sender<Control>,
    clock: Clock,
) -> anyhow::Result<()> {
    let mut told = None;
    loop {
        let now = leadership.borrow_and_update().clone();
        if let Some(term) = now.term.filter(|term| now.leading && told.as_ref() != Some(term)) {
            told = Some(term.clone());
            let (open, compared) = left_open(&log, &term).await;
            tracing::info!(decisions = open.len(), "found open decisions of earlier leaders");
            if !open.is_empty() && control.send(Control::Input(Input::OpenAtTermStart(open))).await.is_err() {
                return Ok(());
            }
            if let Some(numbers) = compared {
                let (counts, lasted) = counts(&numbers, wire(clock).calendar).unwrap_or_default();
                let input = Input::ComparedBefore { counts: Box::new(counts), lasted };
                if control.send(Control::Input(input)).await.is_err() {
                    return Ok(());
                }
            }
        }
        if leadership.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Decisions of earlier terms without a final step, in the order of their last steps, and the last numbers of their
/// comparison with another collector: zeros if there are none, and `None` if the end of the log is not known.
async fn left_open(log: &DecisionLog, term: &Term) -> (Vec<Logged>, Option<GetParityResponse>) {
    let mut compared = log.read_to_the_end().await.then(GetParityResponse::default);
    let Some(extent) = log.extent() else { return (Vec::new(), None) };
    let mut open = Open::default();
    let mut at = Position { log_id: extent.log_id, sequence: extent.in_memory.saturating_sub(1) };
    while at.sequence < extent.newest {
        match log.among(&at, STEP).await {
            Ok(events) => {
                at.sequence += STEP as u64;
                events.for_each(|mut event| {
                    open.take(&event, term);
                    let numbers = event.system.as_mut().and_then(|system| system.parity.take());
                    // The numbers of this term begin with those of earlier terms, which would count twice.
                    if let Some(numbers) = numbers.filter(|_| !is_of(&event, term)) {
                        compared = Some(numbers);
                    }
                });
            }
            Err(Missing::Compacted(now)) => at.sequence = now.in_memory.saturating_sub(1).max(at.sequence + 1),
            Err(Missing::Replaced | Missing::Unreadable(_)) => break,
        }
        tokio::task::yield_now().await;
    }
    (open.into_logged(), compared)
}

/// Whether an event is of this term.
fn is_of(event: &DecisionEvent, term: &Term) -> bool {
    event.term.as_ref().is_some_and(|of| of.number == term.number && of.election_uid == *term.election)
}

/// Decisions by their ids, with the positions of their last steps.
#[derive(Debug, Default)]
struct Open(HashMap<String, (u64, Logged)>);

impl Open {
    fn take(&mut self, event: &DecisionEvent, term: &Term) {
        let is_own = is_of(event, term);
        let sequence = event.position.as_ref().map_or(0, |position| position.sequence);
        let id = &event.decision_id;
        match standing(event) {
            // An executor may still carry out an earlier lease for a target that this leader decides on.
            Some(Standing::Open(_)) if is_own && event.phase() == Phase::Proposed => {}
            Some(Standing::Open(_)) if is_own => {
                self.0.remove(id);
            }
            Some(Standing::Ended) => {
                self.0.remove(id);
            }
            Some(Standing::Open(logged)) => {
                let known = self.0.get(id).map(|(_, known)| known.step);
                // A decision that is held or made again while an executor has its lease. The report is still to come.
                let step = match (known, logged.step) {
                    (Some(LoggedStep::Accepted), LoggedStep::Waiting | LoggedStep::Leased) => LoggedStep::Accepted,
                    (_, step) => step,
                };
                self.0.insert(id.clone(), (sequence, Logged { step, ..logged }));
            }
            None => {}
        }
    }

    fn into_logged(self) -> Vec<Logged> {
        let mut open: Vec<_> = self.0.into_values().collect();
        open.sort_unstable_by_key(|(sequence, _)| *sequence);
        // Keep the newest if there are too many.
        let beyond = open.len().saturating_sub(LOGGED_MAX);
        open.into_iter().skip(beyond).map(|(_, logged)| logged).collect()
    }
}

impl DecisionLog {
    /// Waits, for a bounded time, until this replica has read everything that the stream had at the time of the call.
    /// Returns whether it has.
    async fn read_to_the_end(&self) -> bool {
        let begun = Instant::now();
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            {
                let kept = self.kept();
                let is_there = kept.end.is_some_and(|(asked, end)| asked >= begun && kept.newest() >= end);
                if is_there && kept.extent().is_some() {
                    return true;
                }
            }
            if timeout_at(begun + READ_WITHIN, changes.changed()).await.is_err() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::{Begin, Record};
    use super::super::{EVENTS_MAX, Most, Queue};
    use super::*;
    use crate::decisions::archive::{Archive, Archived};
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use prost::Message as _;
    use proto::decision::v1beta1::SystemEvent;
    use proto::work::v1beta1::{ItemKind, Outcome};
    use runtime::tasks::Tasks;
    use std::sync::Arc;

    /// A stream whose events are all in memory.
    #[derive(Debug)]
    struct Nothing;

    impl Archive for Nothing {
        fn read<'a>(&'a self, _: &'a str, _: u64, _: Most) -> BoxFuture<'a, Result<Archived, String>> {
            async { Err("away".to_owned()) }.boxed()
        }
    }

    fn term(number: u64) -> Term {
        Term { election: "election".into(), number }
    }

    fn event(decision: u64, phase: Phase, of: u64) -> DecisionEvent {
        let target = proto::r#type::v1beta1::ObjectRef {
            version: "v1".into(),
            resource: "secrets".into(),
            kind: "Secret".into(),
            namespace: "shop".into(),
            name: "x".into(),
            uid: format!("uid-{decision}"),
            ..Default::default()
        };
        let report = (phase == Phase::Failed)
            .then(|| proto::decision::v1beta1::Attempt { outcome: Outcome::Ambiguous.into(), ..Default::default() });
        DecisionEvent {
            decision_id: proto::convert::decision_id(decision),
            phase: phase.into(),
            kind: ItemKind::Delete.into(),
            target: Some(target),
            term: Some(term(of).into()),
            report,
            ..Default::default()
        }
    }

    fn mirror(events: Vec<DecisionEvent>) -> DecisionLog {
        let log = DecisionLog::mirror(Arc::new(Nothing), Arc::new(Queue::new(false)));
        log.change(|kept| {
            kept.begin("stream.1".to_owned(), Begin { oldest: 1, first: Some(1), shown_from: 0 });
            for event in events {
                kept.push(Record::Event(event.encode_to_vec().into()), EVENTS_MAX);
            }
        });
        log
    }

    fn read_to_its_end(log: &DecisionLog) {
        log.change(|kept| kept.end = Some((Instant::now(), kept.newest())));
    }

    async fn left(events: Vec<DecisionEvent>) -> Vec<(u64, LoggedStep)> {
        let log = mirror(events);
        read_to_its_end(&log);
        left_open(&log, &term(2)).await.0.into_iter().map(|logged| (logged.decision, logged.step)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_earlier_terms_left_without_an_end_is_found_in_the_order_of_its_last_steps() {
        use Phase::*;
        let steps = [
            (1, Proposed, 1),
            (2, Proposed, 1),
            (3, Proposed, 1),
            (4, Leased, 1),
            (5, Leased, 1),
            (6, Leased, 1),
            (1, Leased, 1),
            (3, Superseded, 1),
            (4, Succeeded, 1),
            (5, Succeeded, 1),
            (5, Confirmed, 1),
            (6, Failed, 1),
            (7, Leased, 1),
            (8, Leased, 1),
            (7, Leased, 2),
            (8, Proposed, 2),
            (9, Leased, 2),
        ];
        let events = steps.map(|(decision, phase, of)| event(decision, phase, of)).to_vec();
        let open = [
            (2, LoggedStep::Waiting),
            (1, LoggedStep::Leased),
            (4, LoggedStep::Accepted),
            (6, LoggedStep::Leased),
            (8, LoggedStep::Leased),
        ];
        assert_eq!(left(events).await, open);
    }

    /// The numbers of a comparison, since the beginning of 1970.
    fn compared(agreed: u64, of: u64) -> DecisionEvent {
        let since = Some(prost_types::Timestamp::default());
        let numbers = GetParityResponse { agreed, since, ..Default::default() };
        DecisionEvent {
            system: Some(SystemEvent { parity: Some(numbers), ..Default::default() }),
            term: Some(term(of).into()),
            ..Default::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_numbers_of_earlier_terms_are_found() {
        let [first, second] = [1, 2].map(|decision| event(decision, Phase::Proposed, 1));
        let log = mirror(vec![compared(3, 1), first, compared(5, 1), second, compared(7, 2)]);
        read_to_its_end(&log);
        let (open, numbers) = left_open(&log, &term(2)).await;
        assert_eq!((open.len(), numbers.map(|numbers| numbers.agreed)), (2, Some(5)));
        let log = mirror(vec![event(1, Phase::Proposed, 1), compared(7, 2)]);
        let (open, numbers) = left_open(&log, &term(2)).await;
        assert_eq!((open.len(), numbers), (1, None), "the end of the log is not read, and may have numbers");
        read_to_its_end(&log);
        let (_, numbers) = left_open(&log, &term(2)).await;
        assert_eq!(numbers, Some(GetParityResponse::default()), "there are none");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_is_told_once_when_its_mirror_has_come_to_the_end_of_the_stream() {
        let log = mirror(vec![event(1, Phase::Leased, 1)]);
        let (leadership, known) = watch::channel(Leadership::default());
        let (control, mut orders) = mpsc::channel(4);
        let mut tasks = Tasks::new();
        tasks.spawn_until_end("hand over", hand_over(log.clone(), known, control, Clock::start()));
        leadership.send_modify(|leadership| (leadership.leading, leadership.term) = (true, Some(term(2))));
        tokio::task::yield_now().await;
        assert!(orders.try_recv().is_err(), "what the mirror has not read may end it");
        log.change(|kept| kept.push(Record::Event(event(2, Phase::Leased, 1).encode_to_vec().into()), EVENTS_MAX));
        read_to_its_end(&log);
        let Some(Control::Input(Input::OpenAtTermStart(open))) = orders.recv().await else { panic!("no order") };
        assert_eq!(open.iter().map(|logged| logged.decision).collect::<Vec<_>>(), [1, 2]);
        let Some(Control::Input(Input::ComparedBefore { counts, .. })) = orders.recv().await else {
            panic!("no earlier leader has counted, which the leader must know")
        };
        assert_eq!(*counts, Default::default());
        log.change(|kept| kept.push(Record::Event(compared(5, 2).encode_to_vec().into()), EVENTS_MAX));
        read_to_its_end(&log);
        leadership.send_modify(|leadership| leadership.problem = Some("x".to_owned()));
        leadership.send_modify(|leadership| leadership.term = Some(term(3)));
        assert!(matches!(orders.recv().await, Some(Control::Input(Input::OpenAtTermStart(_)))), "in the next term");
        let Some(Control::Input(Input::ComparedBefore { counts, lasted })) = orders.recv().await else {
            panic!("no numbers")
        };
        assert_eq!(counts.agreed, 5);
        assert!(lasted > Duration::from_secs(50 * 365 * 24 * 3600), "{lasted:?}");
        assert!(orders.try_recv().is_err());
    }
}
