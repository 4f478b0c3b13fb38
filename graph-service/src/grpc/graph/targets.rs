//! The targets of a preview.

use super::{Graph, TARGETS_MAX, Visibility, WALK_MAX, best_known, lookup, namespaces, status, uid};
use engine::object::Uid;
use engine::plan::PlanOptions;
use engine::view::NodeView;
use proto::graph::v1beta1::PreviewDeletionRequest;
use proto::r#type::v1beta1::{ObjectRef, PropagationPolicy};
use tonic::Status;

impl Graph {
    /// Removes hidden objects from a plan. A hidden object counts as absent.
    pub(super) async fn take_unseen(
        &self,
        targets: &[ObjectRef],
        options: &mut PlanOptions,
        visibility: &Visibility,
    ) -> Result<Vec<Uid>, Status> {
        if visibility.sees_everything() {
            return Ok(Vec::new());
        }
        let known: Vec<Vec<NodeView>> =
            self.shared.reader.with(|leader| options.targets.iter().map(|uid| leader.nodes(uid)).collect());
        visibility.learn(namespaces(known.iter().flatten())).await?;
        let (mut seen, mut unseen) = (Vec::new(), Vec::new());
        for ((object, uid), nodes) in targets.iter().zip(std::mem::take(&mut options.targets)).zip(known) {
            if best_known(nodes, visibility).is_some() {
                seen.push(uid);
            } else if lookup::is_placed(object) {
                unseen.push(uid);
            } else {
                return Err(lookup::not_found(&uid, false, visibility));
            }
        }
        options.targets = seen;
        Ok(unseen)
    }
}

pub(super) fn plan_options(request: &PreviewDeletionRequest) -> Result<PlanOptions, Status> {
    for (field, count) in [("targets", request.targets.len()), ("assume_gone_uids", request.assume_gone_uids.len())] {
        if count > TARGETS_MAX {
            return Err(status::bad_field(field, &format!("has {count} entries; at most {TARGETS_MAX}")));
        }
    }
    if request.targets.is_empty() {
        return Err(status::bad_field("targets", "is empty"));
    }
    let targets = request.targets.iter().map(|target| uid(&target.uid, "targets.uid"));
    let assume_gone = request.assume_gone_uids.iter().map(|text| uid(text, "assume_gone_uids"));
    Ok(PlanOptions {
        targets: targets.collect::<Result<_, Status>>()?,
        propagation_policy: match request.propagation_policy() {
            PropagationPolicy::Unspecified => None,
            PropagationPolicy::Background => Some(engine::work::PropagationPolicy::Background),
            PropagationPolicy::Foreground => Some(engine::work::PropagationPolicy::Foreground),
            PropagationPolicy::Orphan => Some(engine::work::PropagationPolicy::Orphan),
        },
        assume_gone: assume_gone.collect::<Result<_, Status>>()?,
        ignore_holds: request.ignore_holds,
        max_objects: WALK_MAX,
    })
}
