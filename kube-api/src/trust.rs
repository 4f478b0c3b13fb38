//! An API server whose certificate is one of the configured authorities.
//!
//! Small clusters have one certificate that is the authority and the server's at the same time. Go accepts it, because
//! the bundle names that very certificate. webpki refuses every authority as a server. This verifier takes Go's side in
//! that one case and leaves all others to rustls.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use kube::{Config, Error};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tower::BoxError;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A pod's bundle is read again after this time, because the cluster may replace it.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The authorities of one bundle.
#[derive(Debug)]
struct Bundle {
    rustls: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl Bundle {
    fn of(certificates: Vec<CertificateDer<'static>>) -> Result<Bundle, BoxError> {
        let mut store = RootCertStore::empty();
        for certificate in &certificates {
            store.add(certificate.clone())?;
        }
        Ok(Bundle { rustls: WebPkiServerVerifier::builder(Arc::new(store)).build()?, certificates })
    }

    fn read(path: &Path) -> Result<Bundle, BoxError> {
        Bundle::of(CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?)
    }

    /// Checks a certificate that is in the bundle as Go does: the dates, the purpose and the name.
    fn accepts(&self, shown: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), rustls::Error> {
        if !self.certificates.iter().any(|known| known == shown) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        let (_, read) = X509Certificate::from_der(shown).map_err(|_| CertificateError::BadEncoding)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if seconds < read.validity().not_before.timestamp() {
            return Err(CertificateError::NotValidYet.into());
        }
        if seconds > read.validity().not_after.timestamp() {
            return Err(CertificateError::Expired.into());
        }
        let purpose = read.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
        if purpose.is_some_and(|purpose| !purpose.value.server_auth && !purpose.value.any) {
            return Err(CertificateError::InvalidPurpose.into());
        }
        verify_server_name(&ParsedCertificate::try_from(shown)?, name)
    }
}

/// Verifies like rustls, and accepts a server certificate that is itself in the bundle.
pub(super) struct Verifier {
    /// The file of the bundle if it may change.
    path: Option<PathBuf>,
    bundle: RwLock<(Arc<Bundle>, Instant)>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Verifier {
    /// `None` if the configuration names no authority, or verifies nothing: the system decides, or the user has.
    pub(super) fn of(config: &Config) -> Result<Option<Verifier>, Error> {
        let bundle = match (&config.root_cert_file, &config.root_cert) {
            _ if config.accept_invalid_certs => return Ok(None),
            (Some(path), _) => Bundle::read(path),
            (None, Some(known)) if !known.is_empty() => Bundle::of(known.iter().cloned().map(Into::into).collect()),
            (None, Some(_) | None) => return Ok(None),
        };
        let bundle = RwLock::new((Arc::new(bundle.map_err(Error::Service)?), Instant::now()));
        Ok(Some(Verifier { path: config.root_cert_file.clone(), bundle }))
    }

    fn bundle(&self) -> Arc<Bundle> {
        let (bundle, read_at) = self.bundle.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(path) = self.path.as_deref().filter(|_| read_at.elapsed() >= READ_AGAIN_AFTER) else { return bundle };
        // A file that cannot be read leaves the bundle that is known.
        let bundle = match Bundle::read(path) {
            Ok(new) => Arc::new(new),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the authorities of the API server again");
                bundle
            }
        };
        *self.bundle.write().unwrap_or_else(PoisonError::into_inner) = (Arc::clone(&bundle), Instant::now());
        bundle
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let bundle = self.bundle();
        match bundle.rustls.verify_server_cert(shown, intermediates, name, ocsp_response, now) {
            Err(error) if is_authority_as_server(&error) => {
                bundle.accepts(shown, name, now).map(|()| ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.bundle().rustls.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.bundle().rustls.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.bundle().rustls.supported_verify_schemes()
    }
}

/// The one error that is judged again.
fn is_authority_as_server(error: &rustls::Error) -> bool {
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    matches!(other.0.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
}

#[cfg(test)]
mod tests;
