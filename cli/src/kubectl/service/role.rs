//! The role of a replica, and the address of the leader.

use crate::failure::Failure;
use crate::remote;
use executor_service::Channel;
use proto::admin::v1beta1::GetStatusRequest;
use proto::admin::v1beta1::admin_service_client::AdminServiceClient;
use proto::decision::v1beta1::decision_service_client::DecisionServiceClient;
use proto::decision::v1beta1::{DecisionFilter, ListDecisionsRequest};
use proto::error_reason::LEADER_ENDPOINT;
use proto::r#type::v1beta1::{ErrorReason, ObjectFilter, ReplicaRole, ResponseMeta};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

/// Asks for the status. A caller without the right to see it lists one decision instead, in this namespace or in all:
/// the answer, or its error, names the leader.
pub(super) async fn of(channel: Channel, namespace: Option<&str>) -> Result<ResponseMeta, Failure> {
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
                None if error.code() == Code::PermissionDenied => Err(denied(&status, namespace)),
                None => Err(error),
            },
        }
    };
    remote::within(asked).await
}

/// The error for a user who may read neither the status nor the decisions in this namespace.
fn denied(status: &Status, namespace: Option<&str>) -> Status {
    let place = namespace.map_or("in all namespaces".to_owned(), |namespace| format!("in namespace {namespace:?}"));
    let advice = "-n takes a namespace that the user may see";
    Status::permission_denied(format!("{}, and may not see decisions {place}; {advice}", status.message()))
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
pub(in crate::kubectl) fn leader(status: &Status) -> Option<String> {
    let is_other = remote::reason(status) == Some(ErrorReason::NotLeader);
    let mut metadata = status.get_details_error_info().filter(|_| is_other)?.metadata;
    Some(metadata.remove(LEADER_ENDPOINT).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::error_reason::{DOMAIN, text};
    use std::collections::HashMap;
    use tonic_types::ErrorDetails;

    #[test]
    fn the_error_of_a_replica_that_does_not_lead_names_the_leader() {
        let said = |reason: ErrorReason, metadata: &[(&str, &str)]| {
            let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let metadata: HashMap<String, String> = metadata.collect();
            let details = ErrorDetails::with_error_info(text(reason), DOMAIN, metadata);
            leader(&Status::with_error_details(Code::Unavailable, "no", details))
        };
        let address = [(LEADER_ENDPOINT, "10.0.0.7:7450")];
        assert_eq!(said(ErrorReason::NotLeader, &address).as_deref(), Some("10.0.0.7:7450"));
        assert_eq!(said(ErrorReason::NotLeader, &[]).as_deref(), Some(""));
        assert_eq!(said(ErrorReason::NoLeader, &address), None);
        assert_eq!(leader(&Status::unavailable("no")), None);
    }

    #[test]
    fn a_refusal_names_the_namespace_and_the_flag() {
        let status = Status::permission_denied("user \"ada\" may not get status");
        let said = |namespace| denied(&status, namespace).message().to_owned();
        let in_place = "user \"ada\" may not get status, and may not see decisions in namespace \"shop\"; -n takes";
        assert!(said(Some("shop")).starts_with(in_place), "{}", said(Some("shop")));
        assert!(said(None).contains("decisions in all namespaces; -n takes"), "{}", said(None));
    }

    #[test]
    fn a_caller_with_one_namespace_asks_about_it_alone() {
        assert_eq!(request(None).include, []);
        assert_eq!(request(Some("shop")).include[0].targets[0].namespaces, ["shop"]);
    }
}
