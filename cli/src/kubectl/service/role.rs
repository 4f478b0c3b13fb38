//! The role of a replica, and the address of the leader.

use crate::kubectl::ending::Problem;
use crate::remote;
use executor_service::Channel;
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::{DecisionFilter, ListDecisionsRequest};
use proto::error_reason::{LEADER_ENDPOINT, text};
use proto::r#type::v1beta1::{ErrorReason, ObjectFilter, ReplicaRole, ResponseMeta};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Asks for the status. A caller without the right to see it lists one decision instead, in this namespace or in all:
/// the answer, or its error, names the leader.
pub(super) async fn of(channel: Channel, namespace: Option<&str>) -> Result<ResponseMeta, Problem> {
    let mut admin = AdminServiceClient::new(channel.clone());
    let asked = async {
        let status = match admin.get_status(GetStatusRequest {}).await {
            Err(refused) if refused.code() == Code::PermissionDenied => refused,
            other => return other.map(|status| status.map(|status| status.meta.unwrap_or_default())),
        };
        let mut decisions = DecisionServiceClient::new(channel);
        match decisions.list_decisions(request(namespace)).await {
            Ok(listed) => Ok(listed.map(|listed| listed.meta.unwrap_or_default())),
            Err(error) => match leader(&error) {
                Some(leader_endpoint) => {
                    let role = ReplicaRole::Standby.into();
                    Ok(tonic::Response::new(ResponseMeta { role, leader_endpoint, ..ResponseMeta::default() }))
                }
                None if error.code() == Code::PermissionDenied => Err(status),
                None => Err(error),
            },
        }
    };
    Ok(remote::within(asked).await?)
}

fn request(namespace: Option<&str>) -> ListDecisionsRequest {
    let of = |namespace: &str| {
        let target = ObjectFilter { namespaces: vec![namespace.to_owned()], ..ObjectFilter::default() };
        DecisionFilter { targets: vec![target], ..DecisionFilter::default() }
    };
    let include = namespace.map(of).into_iter().collect();
    ListDecisionsRequest { include, page_size: 1, ..ListDecisionsRequest::default() }
}

/// The address in the error of a replica that does not lead. It is empty if the replica does not know it.
fn leader(status: &Status) -> Option<String> {
    let mut info = status.get_details_error_info()?;
    let is_other = info.reason == text(ErrorReason::NotLeader);
    is_other.then(|| info.metadata.remove(LEADER_ENDPOINT).unwrap_or_default())
}
