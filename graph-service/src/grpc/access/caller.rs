//! The identity of a caller, and its credentials.

use crate::grpc::connection::Link;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::header::AUTHORIZATION;
use http::{Extensions, HeaderMap, HeaderValue};
use runtime::tls::{Peer, PeerCertificate};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The pod that a service account's token is bound to, from the TokenReview.
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
/// The group of all authenticated users. The API server adds it to the groups of a certificate, and this service does
/// the same.
const AUTHENTICATED: &str = "system:authenticated";

/// A user as the API server knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) user: String,
    /// Empty if there is none.
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    pub(super) fn of_certificate(certificate: &PeerCertificate) -> Caller {
        let mut groups = certificate.groups.clone();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Caller { user: certificate.user.clone(), groups, ..Caller::default() }
    }

    /// The pod that the token is bound to.
    pub(super) fn pod(&self) -> Option<String> {
        self.extra.get(POD_NAME).and_then(|names| names.first()).cloned()
    }
}

/// The kind of credentials of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::grpc) enum Holder {
    Certificate,
    /// The name of the pod that the token is bound to.
    Token {
        pod: Option<String>,
    },
}

impl Holder {
    /// Returns an error if an executor may not use this name. The error names the pod that its token is bound to. A
    /// certificate admits any name, because an administrator may give one certificate to many executors.
    pub(in crate::grpc) fn may_be(&self, executor: &str) -> Result<(), String> {
        match self {
            Holder::Certificate => Ok(()),
            Holder::Token { pod: Some(pod) } if pod == executor => Ok(()),
            Holder::Token { pod } => Err(pod.clone().unwrap_or_default()),
        }
    }
}

/// The identity of a caller, and the time until which it is valid.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) caller: Arc<Caller>,
    pub(super) holder: Holder,
    /// The expiry of the certificate, or of the token if it states one.
    pub(super) ends: Option<Instant>,
}

/// The credentials of a call.
#[derive(Clone)]
pub(super) enum Credentials {
    Missing,
    /// An authorization header without a bearer token.
    Unreadable(&'static str),
    Token(String),
    Certificate(Arc<PeerCertificate>),
}

impl Credentials {
    /// The credentials of a call.
    pub(super) fn of(headers: &HeaderMap, extensions: &Extensions) -> Credentials {
        Credentials::shown(headers.get(AUTHORIZATION), extensions.get::<Link>().map(|link| &link.peer))
    }

    /// A token takes precedence over the certificate of the connection.
    pub(super) fn shown(authorization: Option<&HeaderValue>, peer: Option<&Peer>) -> Credentials {
        if let Some(given) = authorization {
            return bearer(given.as_bytes()).unwrap_or_else(Credentials::Unreadable);
        }
        let certificate = peer.and_then(Peer::certificate);
        certificate.map_or(Credentials::Missing, |certificate| Credentials::Certificate(Arc::clone(certificate)))
    }
}

fn bearer(given: &[u8]) -> Result<Credentials, &'static str> {
    let text = str::from_utf8(given).map_err(|_| "the authorization header is not text")?;
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    let token = token.trim();
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() {
        return Err("the authorization header has no bearer token");
    }
    if token.len() > super::TOKEN_MAX_BYTES {
        return Err("the token is too long");
    }
    Ok(Credentials::Token(token.to_owned()))
}

/// The cache key of a token. The token itself is not stored.
pub(super) fn digest(token: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Unverified claims of a token. They prove nothing before the API server has accepted the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Claims {
    aud: Audiences,
    /// Seconds since 1970.
    exp: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

impl Default for Audiences {
    fn default() -> Audiences {
        Audiences::Many(Vec::new())
    }
}

impl Claims {
    /// Reads a JSON Web Token; `None` for other tokens.
    pub(super) fn of(token: &str) -> Option<Claims> {
        let payload = token.split('.').nth(1)?;
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
    }

    /// Whether the token names this audience.
    pub(super) fn names(&self, audience: &str) -> bool {
        match &self.aud {
            Audiences::One(one) => one == audience,
            Audiences::Many(many) => many.iter().any(|one| one == audience),
        }
    }

    /// Whether the token names audiences, and not this one.
    pub(super) fn is_for_others(&self, audience: &str) -> bool {
        self.aud != Audiences::default() && !self.names(audience)
    }

    /// Returns the time until the token expires, and zero if it has expired. Returns `None` without an expiry.
    pub(super) fn left(&self) -> Option<Duration> {
        let end = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(self.exp?))?;
        // The result is at most one year, because every clock can represent one year.
        let far = Duration::from_secs(365 * 24 * 3600);
        Some(end.duration_since(SystemTime::now()).unwrap_or_default().min(far))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn a_token_says_whom_it_is_for_and_until_when() {
        let claims = Claims::of(&token(r#"{"aud":["ownergraph","other"],"exp":4102444800,"sub":"x"}"#)).unwrap();
        assert!(!claims.is_for_others("ownergraph") && claims.is_for_others("third"));
        assert_eq!(claims.left(), Some(Duration::from_secs(365 * 24 * 3600)));
        let claims = Claims::of(&token(r#"{"aud":"one","exp":1}"#)).unwrap();
        assert!(claims.is_for_others("ownergraph") && !claims.is_for_others("one"));
        assert!(claims.names("one") && !claims.names("ownergraph"));
        assert_eq!(claims.left(), Some(Duration::ZERO));
        let silent = Claims::of(&token("{}")).unwrap();
        assert!(!silent.is_for_others("ownergraph") && !silent.names("ownergraph") && silent.left().is_none());
        for odd in ["", "opaque", "a.b", "a.!!.c", &token(r#"{"aud":7}"#)] {
            assert_eq!(Claims::of(odd), None, "{odd}");
        }
    }

    #[test]
    fn only_bearer_tokens_are_taken() {
        let read = |text: &str| {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, text.parse().unwrap())]);
            Credentials::of(&headers, &Extensions::new())
        };
        assert!(matches!(read("Bearer abc"), Credentials::Token(token) if token == "abc"));
        assert!(matches!(read("bearer  abc "), Credentials::Token(token) if token == "abc"));
        for odd in ["Bearer", "Bearer ", "Basic abc", "abc", ""] {
            assert!(matches!(read(odd), Credentials::Unreadable(_)), "{odd}");
        }
        let long = format!("Bearer {}", "x".repeat(super::super::TOKEN_MAX_BYTES + 1));
        assert!(matches!(read(&long), Credentials::Unreadable(_)));
        assert!(matches!(Credentials::of(&HeaderMap::new(), &Extensions::new()), Credentials::Missing));
    }

    #[test]
    fn an_executor_goes_by_the_name_of_the_pod_that_its_token_is_bound_to() {
        let bound = Holder::Token { pod: Some("executor-7".to_owned()) };
        assert_eq!(bound.may_be("executor-7"), Ok(()));
        assert_eq!(bound.may_be("executor-8"), Err("executor-7".to_owned()));
        assert_eq!(Holder::Token { pod: None }.may_be("executor-7"), Err(String::new()));
        assert_eq!(Holder::Certificate.may_be("executor-7"), Ok(()));
    }
}
