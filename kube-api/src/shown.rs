//! The credentials that a client shows to its API server, for services that accept the same ones.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use http::header::AUTHORIZATION;
use http::{HeaderValue, Request};
use kube::config::AuthInfo;
use rustls::client::ResolvesClientCert;

/// The credentials of a client. Clones share them.
#[derive(Clone, Default)]
pub struct Shown {
    authorization: Arc<Mutex<Option<HeaderValue>>>,
    certificate: Option<Arc<dyn ResolvesClientCert>>,
    impersonates: bool,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Credentials must never appear in a log.
        f.debug_struct("Shown").field("impersonates", &self.impersonates).finish_non_exhaustive()
    }
}

impl Shown {
    pub(super) fn of(user: &AuthInfo, certificate: Arc<dyn ResolvesClientCert>) -> Shown {
        let AuthInfo { impersonate, impersonate_uid, impersonate_groups, impersonate_user_extra, .. } = user;
        let impersonates = impersonate.is_some()
            || impersonate_uid.is_some()
            || impersonate_groups.as_ref().is_some_and(|groups| !groups.is_empty())
            || impersonate_user_extra.as_ref().is_some_and(|extra| !extra.is_empty());
        Shown { certificate: Some(certificate).filter(|one| one.has_certs()), impersonates, ..Shown::default() }
    }

    /// Remembers the header of a request that passed the authentication layer.
    pub(super) fn note<B>(&self, request: &Request<B>) {
        let mut header = request.headers().get(AUTHORIZATION).cloned();
        header.iter_mut().for_each(|header| header.set_sensitive(true));
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = header;
    }

    /// The `authorization` header of the last request, from a token, a file, an exec plug-in or OIDC. `None` before the
    /// first request. A later request replaces it, for example with a renewed token.
    pub fn authorization(&self) -> &Arc<Mutex<Option<HeaderValue>>> {
        &self.authorization
    }

    /// The client certificate, from a file or an exec plug-in.
    pub fn certificate(&self) -> Option<&Arc<dyn ResolvesClientCert>> {
        self.certificate.as_ref()
    }

    /// Whether requests act as another user. The credentials are still those of the impersonator.
    pub fn impersonates(&self) -> bool {
        self.impersonates
    }
}
