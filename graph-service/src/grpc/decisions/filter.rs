//! Conditions on events.

use crate::grpc::{filter, status};
use proto::decision::v1alpha1::{DecisionEvent, DecisionFilter};
use std::time::SystemTime;
use tonic::Status;

/// Most filters of one request, and most conditions of one filter.
const CONDITIONS_MAX: usize = 1000;

/// Admits what one of its filters admits.
#[derive(Clone, Debug)]
pub(super) struct Filter(Vec<One>);

#[derive(Clone, Debug)]
struct One {
    targets: Option<filter::Filter>,
    wanted: DecisionFilter,
}

impl Filter {
    /// `None` where there is no filter.
    pub(super) fn of(field: &str, filters: &[DecisionFilter]) -> Result<Option<Filter>, Status> {
        let conditions = |filter: &DecisionFilter| filter.phases.len() + filter.kinds.len() + filter.causes.len();
        let count: usize = filters.iter().map(|filter| conditions(filter).max(1)).sum();
        if count > CONDITIONS_MAX {
            return Err(status::bad_field(field, &format!("has {count} conditions; at most {CONDITIONS_MAX}")));
        }
        let one = |wanted: &DecisionFilter| {
            let targets = filter::Filter::of(&wanted.targets)?;
            Ok(One { targets, wanted: DecisionFilter { targets: Vec::new(), ..wanted.clone() } })
        };
        let filters = filters.iter().map(one).collect::<Result<Vec<One>, Status>>()?;
        Ok((!filters.is_empty()).then_some(Filter(filters)))
    }

    pub(super) fn admits(&self, event: &DecisionEvent) -> bool {
        self.0.iter().any(|one| one.admits(event))
    }
}

impl One {
    fn admits(&self, event: &DecisionEvent) -> bool {
        let among = |wanted: &[i32], is: i32| wanted.is_empty() || wanted.contains(&is);
        let target = || event.target.as_ref();
        among(&self.wanted.phases, event.phase)
            && among(&self.wanted.kinds, event.kind)
            && among(&self.wanted.causes, event.cause)
            && self.targets.as_ref().is_none_or(|filter| target().is_some_and(|target| filter.admits_wire(target)))
    }
}

/// A span of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Within {
    from: Option<SystemTime>,
    until: Option<SystemTime>,
}

impl Within {
    pub(super) fn of(
        from: Option<prost_types::Timestamp>,
        until: Option<prost_types::Timestamp>,
    ) -> Result<Within, Status> {
        let time = |field: &str, time: Option<prost_types::Timestamp>| {
            let time = time.map(SystemTime::try_from).transpose();
            time.map_err(|_| status::bad_field(field, "is no moment in time"))
        };
        Ok(Within { from: time("start_time", from)?, until: time("end_time", until)? })
    }

    pub(super) fn admits(&self, event: &DecisionEvent) -> bool {
        let Some(at) = event.event_time.and_then(|at| SystemTime::try_from(at).ok()) else { return false };
        self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
    }
}
