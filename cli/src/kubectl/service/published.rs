//! The data that the graph service publishes for callers with a kubeconfig: its address, the proof of its identity, and
//! the credentials that it accepts. docs/design/service.md has the reasons.

use super::Place;
use crate::failure::refusal;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use kube_api::Shown;
use runtime::cause::innermost;
use runtime::tls::Held;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

const NAMESPACE: &str = "kube-public";
const NAME: &str = "ownergraph";
const CONFIG_MAP: &str = "ConfigMap kube-public/ownergraph";
const AUTHORITY: &str = "ca.crt";

/// The content of the ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    /// The namespace of the pods.
    pub(super) namespace: String,
    /// The name in their certificate.
    pub(super) server_name: String,
    port: u16,
    lease: (String, String),
    audience: String,
    api_server_tokens: bool,
    client_certificates: bool,
    /// `None`: the graph service has not published it yet.
    authority: Option<String>,
}

/// Why nothing is known of the service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unpublished {
    #[error("{CONFIG_MAP} does not exist")]
    Absent,
    #[error("{CONFIG_MAP} cannot be read: {0}")]
    Unknown(String),
    #[error("{CONFIG_MAP} is about a graph service in namespace {0}, and not in that of --port-forward-namespace")]
    Elsewhere(String),
}

/// The kind of the caller's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Certificate,
    Token,
}

impl Published {
    pub(super) async fn read(client: &Client, within: Duration) -> Result<Published, Unpublished> {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let unknown = Unpublished::Unknown;
        match timeout(within, maps.get_opt(NAME)).await {
            Ok(Ok(Some(map))) => Published::of(&map.data.unwrap_or_default())
                .map_err(|key| unknown(format!("its {key} is missing or not readable"))),
            Ok(Ok(None)) => Err(Unpublished::Absent),
            Ok(Err(kube::Error::Api(status))) => Err(unknown(refusal(&status))),
            Ok(Err(error)) => Err(unknown(innermost(&error))),
            Err(_) => Err(unknown("the API server does not answer in time".to_owned())),
        }
    }

    /// The error names the key.
    fn of(data: &BTreeMap<String, String>) -> Result<Published, &'static str> {
        let text = |key: &'static str| data.get(key).filter(|text| !text.is_empty()).cloned().ok_or(key);
        // An unknown word accepts nothing.
        let is_true = |key: &str| data.get(key).is_some_and(|text| text == "true");
        Ok(Published {
            namespace: text("namespace")?,
            server_name: text("serverName")?,
            port: text("port")?.parse().map_err(|_| "port")?,
            lease: (text("leaseNamespace")?, text("leaseName")?),
            audience: text("tokenAudience")?,
            api_server_tokens: is_true("apiServerTokens"),
            client_certificates: is_true("clusterClientCertificates"),
            authority: text(AUTHORITY).ok(),
        })
    }

    /// The same, unless another namespace is wanted.
    pub(super) fn within(self, wanted: Option<&str>) -> Result<Published, Unpublished> {
        match wanted.is_none_or(|wanted| wanted == self.namespace) {
            true => Ok(self),
            false => Err(Unpublished::Elsewhere(self.namespace)),
        }
    }

    /// The pod of the leader.
    pub(super) async fn leader(&self, client: &Client, within: Duration) -> Result<Place, String> {
        let (namespace, name) = &self.lease;
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        let shown = format!("the Lease {namespace}/{name}");
        let lease = match timeout(within, leases.get(name)).await {
            Ok(Ok(lease)) => lease,
            Ok(Err(kube::Error::Api(status))) => return Err(format!("{shown} cannot be read: {}", refusal(&status))),
            Ok(Err(error)) => return Err(format!("{shown} cannot be read: {}", innermost(&error))),
            Err(_) => return Err(format!("{shown} cannot be read: the API server does not answer in time")),
        };
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let pod = pod_of(&holder).ok_or_else(|| match holder.as_str() {
            "" => format!("{shown} has no holder: no replica leads"),
            _ => format!("{shown} has a holder that is no pod: {holder:?}"),
        })?;
        Ok(Place { namespace: self.namespace.clone(), name: pod.to_owned(), ip: String::new(), port: self.port })
    }

    /// Returns the values that a connection needs, unless flags give them. Without `own`, flags give the credentials.
    /// The error is a sentence that says why the service is not asked.
    pub(super) fn held(&self, shown: &Shown, own: bool, has_ca: bool) -> Result<Held, String> {
        let authority = self.authority.as_ref();
        if authority.is_none() && !has_ca {
            return Err(format!("{CONFIG_MAP} has no {AUTHORITY}: the graph service has not published its authority"));
        }
        let authorities =
            authority.map(|text| (("ConfigMap", format!("{NAMESPACE}/{NAME}")), text.clone().into_bytes()));
        let (mut certificate, mut authorization) = (None, None);
        if own {
            let header = shown.authorization().lock().unwrap_or_else(PoisonError::into_inner).clone();
            let scheme = header.as_ref().map(|header| header.to_str().unwrap_or_default());
            match self.kind(shown.impersonates(), shown.certificate().is_some(), scheme)? {
                Kind::Certificate => certificate = shown.certificate().cloned(),
                Kind::Token => authorization = Some(Arc::clone(shown.authorization())),
            }
        }
        Ok(Held { authorities, certificate, authorization })
    }

    /// Which credentials of the kubeconfig to send. The certificate counts first, as at the API server: the token may
    /// be another user's.
    fn kind(&self, impersonates: bool, has_certificate: bool, authorization: Option<&str>) -> Result<Kind, String> {
        if impersonates {
            let why = "the graph service would answer for the credentials, and not for the user of --as";
            return Err(format!("{why}: use --direct, or credentials of that user"));
        }
        let audience = &self.audience;
        let advice = format!("use --token-file with a token of audience {audience:?}");
        let is_bearer = |text: &str| text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer "));
        match (has_certificate, authorization) {
            (true, _) if self.client_certificates => Ok(Kind::Certificate),
            (true, _) => Err(format!("the graph service accepts no client certificates of the cluster: {advice}")),
            (false, Some(text)) if !is_bearer(text) => {
                Err(format!("the credentials of the kubeconfig are no bearer token: {advice}"))
            }
            (false, Some(_)) if self.api_server_tokens => Ok(Kind::Token),
            (false, Some(_)) => Err(format!("the graph service accepts no tokens for the API server: {advice}")),
            (false, None) => Err(format!("the kubeconfig has no credentials: {advice}")),
        }
    }
}

/// The pod in the identity of a holder, which ends with a random part. The name becomes a part of a path, so only a
/// name that the API server admits is one.
fn pod_of(holder: &str) -> Option<&str> {
    let (pod, _) = holder.rsplit_once('_')?;
    let is_admitted = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    Some(pod).filter(|pod| pod.starts_with(|first: char| first.is_ascii_alphanumeric()) && pod.bytes().all(is_admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(changes: &[(&str, Option<&str>)]) -> BTreeMap<String, String> {
        let mut data: BTreeMap<String, String> = [
            ("namespace", "ownergraph"),
            ("serverName", "graph-service.ownergraph.svc"),
            ("port", "7450"),
            ("leaseNamespace", "kube-system"),
            ("leaseName", "ownergraph"),
            ("tokenAudience", "ours"),
            ("apiServerTokens", "true"),
            ("clusterClientCertificates", "true"),
            ("ca.crt", "PEM"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        for (key, value) in changes {
            match value {
                Some(value) => data.insert((*key).to_owned(), (*value).to_owned()),
                None => data.remove(*key),
            };
        }
        data
    }

    #[test]
    fn a_config_map_is_read_whole_or_not_at_all() {
        let whole = Published::of(&data(&[])).unwrap();
        assert!(whole.port == 7450 && whole.api_server_tokens && whole.client_certificates);
        for key in ["namespace", "serverName", "port", "leaseNamespace", "leaseName", "tokenAudience"] {
            assert_eq!(Published::of(&data(&[(key, None)])), Err(key));
            assert_eq!(Published::of(&data(&[(key, Some(""))])), Err(key));
        }
        assert_eq!(Published::of(&data(&[("port", Some("70000"))])), Err("port"));
        let elsewhere = whole.within(Some("other")).unwrap_err().to_string();
        assert!(elsewhere.contains("in namespace ownergraph"), "{elsewhere}");
        assert!(Published::of(&data(&[])).unwrap().within(Some("ownergraph")).is_ok());
        for odd in [None, Some(""), Some("yes"), Some("TRUE"), Some("false")] {
            let map = Published::of(&data(&[("apiServerTokens", odd), ("clusterClientCertificates", odd)])).unwrap();
            assert!(!map.api_server_tokens && !map.client_certificates, "{odd:?}");
        }
    }

    #[test]
    fn without_an_authority_nothing_is_sent() {
        let unproven = Published::of(&data(&[("ca.crt", None)])).unwrap();
        let shown = Shown::default();
        assert!(unproven.held(&shown, false, false).unwrap_err().contains("has no ca.crt"));
        assert!(unproven.held(&shown, false, true).unwrap().authorities.is_none());
        let proven = Published::of(&data(&[])).unwrap();
        let held = proven.held(&shown, false, false).unwrap();
        assert!(held.authorities.is_some() && held.authorization.is_none() && held.certificate.is_none());
        assert!(proven.held(&shown, true, false).unwrap_err().contains("has no credentials"));
    }

    #[test]
    fn each_kind_of_credentials_is_sent_as_itself_or_refused_in_a_sentence() {
        let bearer = Some("Bearer abc");
        for (tokens, certificates, impersonates, has_certificate, authorization, expected) in [
            (true, true, false, false, bearer, Ok(Kind::Token)),
            (true, true, false, false, Some("bearer abc"), Ok(Kind::Token)),
            (true, true, false, true, None, Ok(Kind::Certificate)),
            (true, true, false, true, bearer, Ok(Kind::Certificate)),
            (false, true, false, true, None, Ok(Kind::Certificate)),
            (true, false, false, false, bearer, Ok(Kind::Token)),
            (true, false, false, true, bearer, Err("no client certificates of the cluster")),
            (true, false, false, true, None, Err("no client certificates of the cluster")),
            (false, true, false, false, bearer, Err("no tokens for the API server")),
            (true, true, false, false, Some("Basic abc"), Err("no bearer token")),
            (true, true, false, false, Some(""), Err("no bearer token")),
            (true, true, false, false, None, Err("has no credentials")),
            (true, true, true, false, bearer, Err("not for the user of --as")),
            (true, true, true, true, None, Err("not for the user of --as")),
        ] {
            let mut published = Published::of(&data(&[])).unwrap();
            (published.api_server_tokens, published.client_certificates) = (tokens, certificates);
            let kind = published.kind(impersonates, has_certificate, authorization);
            match expected {
                Ok(expected) => assert_eq!(kind, Ok(expected)),
                Err(words) => assert!(kind.as_ref().is_err_and(|why| why.contains(words)), "{words}: {kind:?}"),
            }
        }
    }

    #[test]
    fn the_pod_is_the_holder_without_its_random_part() {
        for (holder, pod) in [
            ("graph-service-5d9c-x2x_6f1c", Some("graph-service-5d9c-x2x")),
            ("graph.0_6f1c", Some("graph.0")),
            ("graph-0", None),
            ("graph_0_6f1c", None),
            ("Graph_6f1c", None),
            (".._6f1c", None),
            ("../../x_6f1c", None),
            ("graph%2f_6f1c", None),
            ("graph?x=_6f1c", None),
            ("_6f1c", None),
            ("", None),
        ] {
            assert_eq!(pod_of(holder), pod, "{holder}");
        }
    }
}
