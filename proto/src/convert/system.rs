//! Changes of the collector's own state, for the decision log.

use crate::decision::v1beta1::SystemEvent;
use crate::decision::v1beta1::system_event::Kind;
use engine::leader::Event;
use engine::object::clip;

/// Maximum length of a text in such an event.
const TEXT_MAX_BYTES: usize = 1024;

/// The change of the collector's state that an event represents, if any.
pub(super) fn system_event(event: &Event) -> Option<SystemEvent> {
    let about = |kind: Kind, name: &str, reason: &str| SystemEvent {
        kind: kind.into(),
        name: name.to_owned(),
        reason: clip(reason, TEXT_MAX_BYTES),
        ..SystemEvent::default()
    };
    Some(match event {
        Event::PauseTaken { name, scope, reason, actor, problem, .. } => {
            let colon = if reason.is_empty() || problem.is_empty() { "" } else { ": " };
            SystemEvent {
                actor: actor.clone(),
                targets: scope.targets.iter().cloned().map(Into::into).collect(),
                ..about(Kind::PausePressed, name, &format!("{reason}{colon}{problem}"))
            }
        }
        Event::PauseEffective { name } => about(Kind::PauseEffective, name, ""),
        Event::PauseEnded { name, why } => about(Kind::PauseEnded, name, why),
        Event::PausesUnknown { why } => about(Kind::PausesUnknown, "", why),
        Event::PausesKnown => about(Kind::PausesKnown, "", ""),
        Event::GrantsStopped { why } => about(Kind::GrantsStopped, "", why),
        Event::GrantsResumed => about(Kind::GrantsResumed, "", ""),
        Event::Rewound { collection, why } => {
            SystemEvent { collection: collection.to_string(), ..about(Kind::StoreRewound, "", why) }
        }
        Event::ExecutorRefused { executor, why } => about(Kind::ExecutorRefused, executor, why),
        Event::SessionEnded { executor, why: "superseded", .. } => about(Kind::ExecutorSuperseded, executor, ""),
        Event::SessionEnded { .. }
        | Event::Decided { .. }
        | Event::Granted { .. }
        | Event::Held { .. }
        | Event::Withdrawn { .. }
        | Event::Attempted { .. }
        | Event::ReportedLate { .. }
        | Event::Confirmed { .. }
        | Event::AwaitingFinalizers { .. }
        | Event::Removed { .. }
        | Event::Proven { .. }
        | Event::Prevented { .. }
        | Event::Undone { .. }
        | Event::Collection { .. }
        | Event::Asked { .. }
        | Event::Inconsistent { .. }
        | Event::KeptApart { .. }
        | Event::SessionOpened { .. }
        | Event::Untrue { .. }
        | Event::TermGained(_)
        | Event::TermLost
        | Event::OwnerInOtherNamespace { .. }
        | Event::TooManyReferences { .. }
        | Event::Readopted { .. }
        | Event::OrphaningForgotten { .. }
        | Event::Unusable { .. }
        | Event::Rejected { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::clock::Clock;
    use super::super::decision_event;
    use super::*;
    use engine::work::Term;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_change_of_the_collector_has_no_target_and_says_what_and_why() {
        let clock = Clock { now: engine::time::Time::ZERO, calendar: SystemTime::UNIX_EPOCH };
        let event = Event::PauseTaken {
            name: "p".into(),
            scope: engine::hold::Scope::default(),
            reason: "maintenance".to_owned(),
            actor: "jane".to_owned(),
            problem: String::new(),
            lasts: Duration::from_secs(60),
        };
        let term = Term { election: "election".into(), number: 3 };
        let told = decision_event(&event, &term, clock).unwrap();
        let system = told.system.clone().unwrap();
        assert_eq!((told.target, told.phase, told.term.unwrap().number), (None, 0, 3));
        assert_eq!((system.kind(), system.name, system.actor), (Kind::PausePressed, "p".to_owned(), "jane".to_owned()));
        assert_eq!(system.reason, "maintenance");
        assert_eq!(decision_event(&Event::TermLost, &term, clock), None);
        let long = Event::GrantsStopped { why: "x".repeat(10_000) };
        let told = decision_event(&long, &term, clock).unwrap();
        assert_eq!(told.system.unwrap().reason.len(), TEXT_MAX_BYTES);
    }
}
