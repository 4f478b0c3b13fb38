//! Converts the comparison with another collector to messages.

use super::clock::Clock;
use crate::decision::v1beta1::{
    DecisionEvent, Disagreement, GetParityResponse, Phase, disagreement, get_parity_response,
};
use crate::work::v1beta1 as work;
use engine::object::GroupResource;
use engine::parity;
use engine::work::Term;
use std::time::SystemTime;

/// A disagreement as an event, without a bound on its size.
pub fn disagreed(found: &parity::Disagreement, term: &Term, clock: Clock) -> DecisionEvent {
    let (user, audit_id) = found.audited.as_ref().map_or(("", ""), |(user, id)| (user, id));
    DecisionEvent {
        event_time: Some(clock.timestamp(found.at)),
        phase: Phase::Disagreed.into(),
        kind: work::ItemKind::from(found.action).into(),
        target: Some(found.target.clone().into()),
        owners: found.owners.iter().cloned().map(Into::into).collect(),
        owner_count: found.owner_count as u64,
        watch_resource_version: found.version.as_ref().map(ToString::to_string).unwrap_or_default(),
        term: Some(term.clone().into()),
        disagreement: Some(Disagreement {
            number: found.number,
            outcome: disagreement::Outcome::from(found.outcome).into(),
            class: disagreement::Class::from(found.class).into(),
            decided: found.decided.map(work::ItemKind::from).unwrap_or_default().into(),
            user: user.to_owned(),
            audit_id: audit_id.to_owned(),
        }),
        ..DecisionEvent::default()
    }
}

same_names!(parity::Outcome => disagreement::Outcome { OursOnly, TheirsOnly });
same_names!(parity::Class => disagreement::Class {
    Unknown, Timing, Refused, Held, Unproven, Orphaned, DroppedReference, Cycle, OtherVersion, OtherCoordinates,
    OwnChange, TooManyReferences, Earlier,
});

/// The numbers of the comparison.
pub fn parity(view: parity::ParityView, clock: Clock) -> GetParityResponse {
    let parity::ParityView { since, before, counts, collections, open, unsettled, wait, audited } = view;
    let duration = |of: std::time::Duration| prost_types::Duration::try_from(of).unwrap_or_default();
    let classes = parity::Class::ALL.into_iter().filter(|&class| counts.of(class) > 0);
    let class = |class: parity::Class| get_parity_response::ClassCount {
        class: disagreement::Class::from(class).into(),
        ours_only: counts.ours_only[class as usize],
        theirs_only: counts.theirs_only[class as usize],
    };
    let collection = |(of, row): (GroupResource, parity::Row)| get_parity_response::CollectionCount {
        group_resource: Some(of.into()),
        agreed: row.agreed,
        ours_only: row.ours_only,
        theirs_only: row.theirs_only,
        unattributed: row.unattributed,
        unknown: row.unknown,
    };
    GetParityResponse {
        since: Some(earlier(clock.timestamp(since), before)),
        agreed: counts.agreed,
        theirs_first: counts.theirs_first,
        late: counts.late,
        unattributed: counts.unattributed,
        withdrawn: counts.withdrawn,
        not_compared: counts.not_compared,
        without_request: counts.without_request,
        classes: classes.map(class).collect(),
        comparable: counts.comparable(),
        delay_p50: Some(duration(counts.delay(500))),
        delay_p99: Some(duration(counts.delay(990))),
        open: open as u64,
        unsettled: unsettled as u64,
        wait: Some(duration(wait)),
        audited,
        collections: collections.into_iter().map(collection).collect(),
        meta: None,
    }
}

fn earlier(at: prost_types::Timestamp, by: std::time::Duration) -> prost_types::Timestamp {
    let before = SystemTime::try_from(at).ok().and_then(|at| at.checked_sub(by));
    before.map_or(at, Into::into)
}

/// The counts in an event of the log, and the time since they began. The engine bounds them.
pub fn counts(of: &GetParityResponse, now: SystemTime) -> Option<(parity::Counts, std::time::Duration)> {
    let since = SystemTime::try_from(of.since?).ok()?;
    let lasted = now.duration_since(since).unwrap_or_default();
    let mut counts = parity::Counts::default();
    counts.agreed = of.agreed;
    counts.theirs_first = of.theirs_first;
    counts.late = of.late;
    counts.unattributed = of.unattributed;
    counts.withdrawn = of.withdrawn;
    counts.not_compared = of.not_compared;
    counts.without_request = of.without_request;
    for known in parity::Class::ALL {
        if let Some(count) = of.classes.iter().find(|count| count.class() == disagreement::Class::from(known)) {
            counts.ours_only[known as usize] = count.ours_only;
            counts.theirs_only[known as usize] = count.theirs_only;
        }
    }
    Some((counts, lasted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::time::Time;
    use std::time::Duration;

    #[test]
    fn the_next_leader_reads_the_counts_that_the_last_one_wrote() {
        let mut counts = parity::Counts::default();
        [counts.agreed, counts.theirs_first, counts.late] = [1, 2, 3];
        [counts.unattributed, counts.withdrawn, counts.not_compared, counts.without_request] = [4, 5, 6, 7];
        for (class, at) in parity::Class::ALL.into_iter().zip(10..) {
            (counts.ours_only[class as usize], counts.theirs_only[class as usize]) = (at, 100 * at);
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let view = parity::ParityView {
            since: Time::from_origin(Duration::from_secs(70)),
            before: Duration::from_secs(500),
            counts: counts.clone(),
            collections: Vec::new(),
            open: 0,
            unsettled: 0,
            wait: Duration::from_secs(30),
            audited: false,
        };
        let written = parity(view, Clock { now: Time::from_origin(Duration::from_secs(100)), calendar: now });
        let read = super::counts(&written, now + Duration::from_secs(7)).unwrap();
        assert_eq!(read, (counts, Duration::from_secs(537)), "the time of the last leader, before it, and since then");
        let since = GetParityResponse { since: None, ..written.clone() };
        assert_eq!(super::counts(&since, now), None, "not numbers of a leader");
        let from_the_future = super::counts(&written, SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(from_the_future.1, Duration::ZERO);
    }
}
