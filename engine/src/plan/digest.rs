//! The digest of a plan: it differs if any fact of the plan has changed.

use super::{Copied, Copy, PlanOptions};
use crate::containers::Container;
use crate::evidence::Presence;
use crate::object::Digest;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

/// The digest covers the parameters and every fact that the plan depends on. It does not cover the resourceVersion,
/// because changes outside of references, finalizers and marks do not change the plan. The
/// caller adds which of the guards apply that are asked at the grant.
pub(super) fn digest(copy: &Copy, options: &PlanOptions) -> Digest {
    let mut digest = Digest::default();
    digest.text(&format!("{:?} {:?}", options.propagation_policy, options.ignore_holds));
    for uids in [&options.targets, &options.assume_gone] {
        digest.text("uids");
        for uid in uids {
            digest.uid(uid);
        }
    }
    let mut nodes: Vec<&Copied> = copy.nodes.iter().collect();
    nodes.sort_by(|a, b| {
        (&a.uid, a.at.kind, &a.at.namespace, &a.at.name).cmp(&(&b.uid, b.at.kind, &b.at.namespace, &b.at.name))
    });
    for node in nodes {
        let kind = copy.coverage.kind(node.at.kind);
        for text in [&kind.group, &kind.kind, &node.at.namespace, &node.at.name] {
            digest.text(text);
        }
        digest.uid(&node.uid);
        let presence = match &node.presence {
            Presence::Observed { .. } => 1,
            Presence::Read { .. } => 2,
            Presence::Virtual { .. } => 3,
            Presence::Absent(_) => 4,
        };
        digest.byte(presence);
        digest.byte(u8::from(node.orphaned));
        if node.whole {
            if let Some(place) = Container::of(kind, &node.at.name) {
                for kind in place.unseen(&copy.coverage).map(|id| copy.coverage.kind(id)) {
                    digest.text(&kind.group);
                    digest.text(&kind.kind);
                }
            }
            let brake = node.hold.as_ref().and_then(|hold| copy.brakes.get(hold));
            digest.text(brake.map_or("", |brake| &brake.words));
        }
        if let Some(facts) = &node.facts {
            digest.number(facts.digest());
            for finalizer in &facts.finalizers {
                digest.text(finalizer);
            }
        }
    }
    for &kind in &copy.unseen {
        let kind = copy.coverage.kind(kind);
        digest.text(&kind.group);
        digest.text(&kind.kind);
    }
    for hidden in &copy.hidden {
        digest.text(&hidden.to_string());
    }
    digest
}
