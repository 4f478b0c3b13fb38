//! Guards for readers.

use super::Clock;
use crate::admin::v1beta1::guard::Kind;
use crate::admin::v1beta1::{ApprovalUsage, BudgetUsage, Bypass, Cascade, GateUsage, Guard, cascade};
use engine::guard::{self, GuardKind, Rule};
use engine::view::{GuardUsage, GuardView};
use std::time::SystemTime;

same_names!(GuardKind => Kind { Pause, Protection, Approval, Gate, Budget });

/// A guard in its current state.
pub fn guard(view: GuardView, clock: Clock) -> Guard {
    let written = SystemTime::UNIX_EPOCH.checked_add(view.created).filter(|_| !view.created.is_zero());
    let ends = written.and_then(|written| written.checked_add(view.lifetime?));
    let (mut budget, mut approval, mut gate) = (None, None, None);
    match view.usage {
        GuardUsage::Standing => {}
        GuardUsage::Budget { spent, exceeded_from, .. } => {
            budget = Some(BudgetUsage { spent, exceeded: exceeded_from.is_some() });
        }
        GuardUsage::Approval { waiting, accepted, .. } => {
            let all = |of: Vec<guard::Cascade>| of.into_iter().map(Into::into).collect();
            approval = Some(ApprovalUsage { waiting: all(waiting), accepted: all(accepted) });
        }
        GuardUsage::Gate { in_flight, denied } => {
            let bypass = bypass(&view.rule);
            gate = Some(GateUsage { in_flight: in_flight as u64, denied: denied as u64, bypass });
        }
    }
    Guard {
        name: format!("{}/{}", view.id.kind.plural(), view.id.name),
        kind: Kind::from(view.id.kind).into(),
        scope: view.scope.to_string(),
        reason: view.reason,
        actor: view.actor,
        create_time: written.map(Into::into),
        expire_time: ends.map(Into::into).or_else(|| Some(clock.later(view.until?))),
        effective: view.effective,
        expired: view.over,
        pending: view.pending,
        held_items: view.held as u64,
        problem: view.problem,
        budget,
        approval,
        gate,
    }
}

fn bypass(rule: &Rule) -> Option<Bypass> {
    let Rule::Gate(gate) = rule else { return None };
    let expire_time = SystemTime::UNIX_EPOCH.checked_add(gate.bypass_until).filter(|_| !gate.bypass_until.is_zero())?;
    Some(Bypass { expire_time: Some(expire_time.into()), reason: gate.bypass.clone(), actor: gate.bypass_by.clone() })
}

impl From<guard::Cascade> for Cascade {
    fn from(cascade: guard::Cascade) -> Self {
        let total = |(resource, count): (engine::object::GroupResource, u64)| cascade::Total {
            resource: Some(resource.into()),
            count,
        };
        Cascade {
            root: Some(cascade.root.into()),
            objects: cascade.objects,
            totals: cascade.totals.into_iter().map(total).collect(),
            digest: format!("{:016x}", cascade.digest),
            complete: cascade.complete,
        }
    }
}
