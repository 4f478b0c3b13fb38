//! The effect of approvals, gates and budgets on a plan. Nothing is asked, and nothing is taken.

use super::super::holding::Holding;
use super::cascades::CascadeOf;
use super::{Consent, approvals, inherits};
use crate::guard::{Approval, Cascade, GuardId, Rule};
use crate::hold::Holds;
use crate::object::Uid;
use crate::plan::{Asking, Asks, Window};
use crate::time::Time;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

/// The cascades of the roots of a plan, counted in steps. They are counted only if there are approvals.
#[derive(Debug, Default)]
pub(in crate::leader) struct Foreseen {
    open: VecDeque<Uid>,
    counting: Option<CascadeOf>,
    counted: Vec<CascadeOf>,
}

/// The guards that are asked at the grant, at the time of a plan.
#[derive(Debug, Default)]
pub(in crate::leader) struct Asked {
    guards: Vec<Inquiry>,
    /// The cascades that are under way with an approval, and those of an entry that an earlier leader has accepted, by
    /// their roots.
    permitted: BTreeSet<(GuardId, Uid)>,
}

#[derive(Debug)]
struct Inquiry {
    id: GuardId,
    reason: String,
    until: Option<Time>,
    rule: Rule,
    /// The time since 1970.
    calendar: Duration,
    window: Window,
}

impl Foreseen {
    pub(in crate::leader) fn of(roots: impl Iterator<Item = Uid>) -> Foreseen {
        Foreseen { open: roots.collect(), ..Foreseen::default() }
    }

    pub(in crate::leader) fn is_counted(&self) -> bool {
        self.open.is_empty() && self.counting.is_none()
    }

    /// Visits at most `budget` nodes. Returns what is left of the budget.
    pub(in crate::leader) fn step(&mut self, holding: &Holding<'_>, budget: usize) -> usize {
        let approvals = approvals(holding);
        if approvals.is_empty() {
            *self = Foreseen::default();
            return budget;
        }
        let graph = holding.world.graph();
        let mut counting = match self.counting.take() {
            Some(counting) => counting,
            None => {
                let Some(uid) = self.open.pop_front() else { return budget };
                let Some(root) = graph.primary(&uid) else { return budget };
                let mut counting = CascadeOf::new(holding.world.object_ref(root));
                counting.begin(graph, graph.by_uid(&uid).collect());
                counting
            }
        };
        let left = counting.step(holding, &approvals, budget);
        if counting.is_counted() {
            self.counted.push(counting);
        } else {
            self.counting = Some(counting);
        }
        left
    }

    /// The guards as a plan needs them.
    pub(in crate::leader) fn asking(&self, asked: Asked) -> Vec<Asking> {
        let Asked { guards, permitted } = asked;
        let asks = |inquiry: &Inquiry| match &inquiry.rule {
            Rule::Hold => None,
            Rule::Approval(approval) => Some(Asks::Approval(self.awaits(inquiry, approval, &permitted))),
            Rule::Gate(_) => Some(Asks::Gate),
            Rule::Budget(_) => Some(Asks::Budget(inquiry.window.clone())),
        };
        let asking = guards.iter().filter_map(|inquiry| {
            let Inquiry { id, reason, until, .. } = inquiry;
            Some(Asking { id: id.clone(), reason: reason.clone(), until: *until, asks: asks(inquiry)? })
        });
        asking.collect()
    }

    /// The cascades that need an approval, and whether it is given.
    fn awaits(
        &self,
        Inquiry { id, calendar, .. }: &Inquiry,
        approval: &Approval,
        permitted: &BTreeSet<(GuardId, Uid)>,
    ) -> Vec<(Cascade, bool)> {
        let needing = self.counted.iter().filter(|known| known.needs(id, approval));
        let with_approval = needing.map(|known| {
            let (root, digest) = (&known.root.uid, known.extent.digest);
            let is_given = permitted.contains(&(id.clone(), root.clone()))
                || approval
                    .approved
                    .iter()
                    .any(|approved| approved.stands(root, *calendar) && approved.digest == digest);
            (known.extent.clone(), is_given)
        });
        with_approval.collect()
    }
}

impl Consent {
    /// The guards that something may wait for. A gate that is bypassed or only observes is left out.
    pub(in crate::leader) fn asked(&self, now: Time, holds: &Holds) -> Asked {
        let inquiry = |entry: &crate::hold::Entry| {
            let (id, rule, calendar) = (&entry.guard.id, &entry.guard.rule, entry.calendar(now));
            let window = match rule {
                Rule::Gate(gate) if gate.observe_only || calendar < gate.bypass_until => return None,
                Rule::Budget(budget) => self.budgets.window(now, id, budget),
                Rule::Hold | Rule::Gate(_) | Rule::Approval(_) => Window::default(),
            };
            let (id, reason, rule) = (id.clone(), entry.guard.reason.clone(), rule.clone());
            Some(Inquiry { id, reason, until: entry.until, rule, calendar, window })
        };
        let permitted = |(root, known): (&Uid, &CascadeOf)| -> Vec<(GuardId, Uid)> {
            known.permitted().map(|id| (id.clone(), root.clone())).collect()
        };
        let guards: Vec<Inquiry> = holds.asking().filter_map(inquiry).collect();
        let inherited = |Inquiry { id, rule, calendar, .. }: &Inquiry| -> Vec<(GuardId, Uid)> {
            let Rule::Approval(Approval { approved, .. }) = rule else { return Vec::new() };
            let standing =
                approved.iter().filter(|one| one.stands(&one.root, *calendar) && inherits(&self.accepted, id, one));
            standing.map(|one| (id.clone(), one.root.clone())).collect()
        };
        let permitted = self.cascades.iter().flat_map(permitted).chain(guards.iter().flat_map(inherited)).collect();
        Asked { guards, permitted }
    }
}
