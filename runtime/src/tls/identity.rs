//! The identity in a certificate.

use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

/// An instant that is never reached, and that every platform's clock can represent.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The identity in a client certificate, as the API server reads it. The certificate was checked in the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject's common name; never empty.
    pub user: String,
    /// The subject's organizations, in their order.
    pub groups: Vec<String>,
    /// The expiry of the certificate on the monotonic clock; a year from now if it is further away.
    pub not_after: Instant,
}

/// How a connection reached this process. Every request has it in its extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Plaintext, or a pipe within the process: the identity is unknown.
    Plaintext,
    /// TLS. `None` if the peer has shown no certificate, or one without a user.
    Tls(Option<Arc<PeerCertificate>>),
}

impl Peer {
    /// The certificate, if there is one.
    pub fn certificate(&self) -> Option<&Arc<PeerCertificate>> {
        match self {
            Peer::Plaintext | Peer::Tls(None) => None,
            Peer::Tls(Some(certificate)) => Some(certificate),
        }
    }
}

impl PeerCertificate {
    /// Reads a checked certificate. `None` without a user, as at the API server.
    pub(super) fn read(der: &[u8]) -> Option<PeerCertificate> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        // The last common name counts, and an unreadable common name is no user. Both rules are those of Go.
        let user = subject.iter_common_name().last()?.as_str().ok().filter(|name| !name.is_empty())?.to_owned();
        let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned).collect();
        let ends = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        let left = Duration::from_secs(ends.saturating_sub(UnixTime::now().as_secs())).min(FAR);
        Some(PeerCertificate { user, groups, not_after: Instant::now() + left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn read(fill: impl FnOnce(&mut CertificateParams)) -> Option<PeerCertificate> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        fill(&mut params);
        PeerCertificate::read(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    #[tokio::test]
    async fn user_and_groups_are_read_as_the_api_server_reads_them() {
        let read_one = read(|params| {
            params.distinguished_name.push(DnType::OrganizationName, "ownergraph:executors");
            params.distinguished_name.push(DnType::CommonName, "executor-1");
            params.not_after = rcgen::date_time_ymd(4096, 1, 1);
        });
        let read_one = read_one.unwrap();
        assert_eq!(
            (read_one.user.as_str(), read_one.groups.as_slice()),
            ("executor-1", &["ownergraph:executors".to_owned()][..])
        );
        let left = read_one.not_after - Instant::now();
        assert!(left <= FAR && left > FAR - Duration::from_secs(60), "{left:?}");
        assert_eq!(read(|params| params.distinguished_name.push(DnType::OrganizationName, "system:masters")), None);
        assert_eq!(read(|params| params.distinguished_name.push(DnType::CommonName, "")), None);
        assert_eq!(PeerCertificate::read(b"no certificate"), None);
    }

    #[tokio::test]
    async fn a_certificate_that_has_ended_ends_now() {
        let ended = read(|params| {
            params.distinguished_name.push(DnType::CommonName, "late");
            params.not_after = rcgen::date_time_ymd(1999, 1, 1);
        });
        assert!(ended.unwrap().not_after <= Instant::now());
    }
}
