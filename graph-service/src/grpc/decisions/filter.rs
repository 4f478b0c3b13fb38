//! Filters on events.

use super::event::EVENT;
use super::looked::Looked;
use crate::expression::Expression;
use crate::grpc::filter::Errors;
use crate::grpc::{filter, status};
use proto::decision::v1beta1::{Cause, DecisionEvent, DecisionFilter, Phase};
use proto::work::v1beta1::ItemKind;
use std::time::SystemTime;
use tonic::Status;

/// Admits an event that any of its filters admits.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct Filter {
    any: Vec<One>,
    errors: Errors,
}

#[derive(Clone, Debug)]
struct One {
    targets: Option<filter::Filter>,
    expression: Option<Expression>,
    wanted: DecisionFilter,
}

impl Filter {
    /// `None` without filters.
    pub(in crate::grpc) fn of(field: &str, filters: &[DecisionFilter]) -> Result<Option<Filter>, Status> {
        let conditions = |filter: &DecisionFilter| filter.phases.len() + filter.kinds.len() + filter.causes.len();
        let count: usize = filters.iter().map(|filter| conditions(filter).max(1)).sum();
        filter::ensure_bounded(field, count, filters.iter().map(|filter| &*filter.cel))?;
        let errors = Errors::default();
        let one = |(at, wanted): (usize, &DecisionFilter)| {
            known::<Phase>(&format!("{field}[{at}].phases"), &wanted.phases)?;
            known::<ItemKind>(&format!("{field}[{at}].kinds"), &wanted.kinds)?;
            known::<Cause>(&format!("{field}[{at}].causes"), &wanted.causes)?;
            let targets = filter::Filter::of_names(&format!("{field}[{at}].targets"), &wanted.targets)?;
            let targets = targets.map(|targets| targets.counting(&errors));
            let expression = Expression::of(&wanted.cel, &EVENT)
                .map_err(|mistake| status::expression_invalid(&format!("{field}[{at}].cel"), &mistake))?;
            Ok(One { targets, expression, wanted: DecisionFilter { targets: Vec::new(), ..wanted.clone() } })
        };
        let filters = filters.iter().enumerate().map(one).collect::<Result<Vec<One>, Status>>()?;
        Ok((!filters.is_empty()).then_some(Filter { any: filters, errors }))
    }

    pub(in crate::grpc) fn admits(&self, event: &Looked) -> bool {
        self.any.iter().any(|one| one.admits(event, &self.errors))
    }

    /// The number of failed evaluations of an expression.
    pub(super) fn errors(&self) -> u64 {
        self.errors.count()
    }
}

impl One {
    /// The cheapest conditions come first.
    fn admits(&self, looked: &Looked, errors: &Errors) -> bool {
        let event = looked.event();
        let among = |wanted: &[i32], is: i32| wanted.is_empty() || wanted.contains(&is);
        let target = || event.target.as_ref();
        if event.system.is_some() {
            // The destructured conditions concern the event, the others its target.
            let DecisionFilter { phases, kinds, causes, .. } = &self.wanted;
            let has_none = phases.is_empty() && kinds.is_empty() && causes.is_empty();
            return has_none && self.targets.is_none() && self.expression.is_none();
        }
        among(&self.wanted.phases, event.phase)
            && among(&self.wanted.kinds, event.kind)
            && among(&self.wanted.causes, event.cause)
            && self
                .targets
                .as_ref()
                .is_none_or(|filter| target().is_some_and(|target| filter.admits_name(target, || looked.activation())))
            && self.expression.as_ref().is_none_or(|expression| errors.is_true(expression, looked.activation()))
    }
}

/// Returns an error for an unknown or unspecified enum value, because no event has it.
pub(super) fn known<E: TryFrom<i32> + Default + PartialEq>(field: &str, values: &[i32]) -> Result<(), Status> {
    for &value in values {
        if E::try_from(value).ok().is_none_or(|value| value == E::default()) {
            return Err(status::bad_field(field, &format!("has the value {value}, which no event has")));
        }
    }
    Ok(())
}

/// A time span.
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
            time.map_err(|_| status::bad_field(field, "is not a valid timestamp"))
        };
        Ok(Within { from: time("start_time", from)?, until: time("end_time", until)? })
    }

    pub(super) fn admits(&self, event: &DecisionEvent) -> bool {
        let Some(at) = event.event_time.and_then(|at| SystemTime::try_from(at).ok()) else { return false };
        self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::decision::v1beta1::{Attempt, Phase, SystemEvent};
    use proto::r#type::v1beta1::ObjectRef;
    use proto::work::v1beta1::{ItemKind, Outcome};

    #[test]
    fn what_happens_to_the_collector_passes_filters_without_conditions_alone() {
        let event = DecisionEvent { system: Some(SystemEvent::default()), ..DecisionEvent::default() };
        let admits = |filter: DecisionFilter| {
            Filter::of("include", &[filter]).unwrap().unwrap().admits(&Looked::of(event.clone()))
        };
        let none = DecisionFilter::default;
        assert!(admits(none()));
        assert!(!admits(DecisionFilter { phases: vec![Phase::Proposed.into()], ..none() }));
        assert!(!admits(DecisionFilter { causes: vec![1], ..none() }));
        assert!(!admits(DecisionFilter { kinds: vec![1], ..none() }));
        assert!(!admits(DecisionFilter { cel: "event.phase != 'FAILED'".to_owned(), ..none() }));
        let filter = proto::r#type::v1beta1::ObjectFilter::default();
        assert!(!admits(DecisionFilter { targets: vec![filter], ..none() }));
    }

    #[test]
    fn expressions_see_every_field_that_is_told_of() {
        let event = DecisionEvent {
            phase: Phase::Failed.into(),
            kind: ItemKind::Delete.into(),
            target: Some(ObjectRef { kind: "Pod".to_owned(), ..ObjectRef::default() }),
            report: Some(Attempt { outcome: Outcome::Forbidden.into(), http_status: 403, ..Attempt::default() }),
            ..DecisionEvent::default()
        };
        let admits = |cel: &str| {
            let filter = DecisionFilter { cel: cel.to_owned(), ..DecisionFilter::default() };
            Filter::of("include", &[filter]).unwrap().unwrap().admits(&Looked::of(event.clone()))
        };
        for (field, _) in EVENT.fields {
            assert!(admits(&format!("has(event.{field})")), "{field}");
        }
        assert!(admits("event.phase == 'FAILED' && event.action == 'DELETE' && event.target.kind == 'Pod'"));
        assert!(admits("event.outcome == 'FORBIDDEN' && event.http_status == 403 && event.root == null"));
        assert!(admits("event.cause == '' && size(event.cause_chain) == 0 && !('CYCLE' in event.reasons)"));
    }
}
