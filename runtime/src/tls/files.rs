//! Reads files whole, and checks them before use.

use std::io::{self, ErrorKind, Read as _};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncReadExt as _;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

/// Maximum size of a file, far above any certificate chain or bundle of authorities.
const FILE_MAX_BYTES: u64 = 4 * 1024 * 1024;

/// An invalid TLS flag or file: one sentence that names it and says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTls(pub(super) String);

/// A file and its flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    pub(super) flag: &'static str,
    pub(super) path: PathBuf,
    /// The content, if it is not on a disk.
    held: Option<Vec<u8>>,
}

/// A certificate, its chain and its key.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) certified: Arc<CertifiedKey>,
    /// The validity of the certificate, in seconds since 1970.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

impl Pair {
    /// Returns the pair, if it is valid now.
    pub(super) fn in_time(self, file: &File) -> Result<Pair, BadTls> {
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
        if now > self.not_after {
            return Err(file.bad(&format!("the certificate has expired, on {}; renew it", date(self.not_after))));
        }
        if now < self.not_before {
            let from = date(self.not_before);
            return Err(file.bad(&format!("the certificate is not valid before {from}; wait, or set the clock")));
        }
        Ok(self)
    }
}

/// The one provider of cryptography.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A point in time as text for users.
pub(super) fn date(seconds_since_1970: i64) -> String {
    ASN1Time::from_timestamp(seconds_since_1970)
        .map_or_else(|_| seconds_since_1970.to_string(), |time| time.to_string())
}

impl File {
    pub(crate) fn new(flag: &'static str, path: impl Into<PathBuf>) -> File {
        File { flag, path: path.into(), held: None }
    }

    /// A content in memory, with the kind and the name of its origin for messages.
    pub(super) fn held((kind, name): (&'static str, String), content: Vec<u8>) -> File {
        File { flag: kind, path: name.into(), held: Some(content) }
    }

    /// The content of the file.
    pub(super) async fn read(&self) -> Result<Vec<u8>, BadTls> {
        if let Some(content) = &self.held {
            return Ok(content.clone());
        }
        let mut text = Vec::new();
        let read = async {
            let file = tokio::fs::File::open(&self.path).await?;
            file.take(FILE_MAX_BYTES + 1).read_to_end(&mut text).await
        };
        let read = read.await;
        self.whole(text, read)
    }

    /// Reads the file without async, for the start.
    pub(crate) fn read_now(&self) -> Result<Vec<u8>, BadTls> {
        let mut text = Vec::new();
        let read = std::fs::File::open(&self.path);
        let read = read.and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut text));
        self.whole(text, read)
    }

    fn whole(&self, text: Vec<u8>, read: io::Result<usize>) -> Result<Vec<u8>, BadTls> {
        read.map_err(|error| {
            let kind = error.kind();
            if kind == ErrorKind::NotFound {
                self.bad("the file does not exist")
            } else if kind == ErrorKind::PermissionDenied {
                self.bad("this user may not read the file")
            } else {
                self.bad(&error.to_string())
            }
        })?;
        if text.len() as u64 > FILE_MAX_BYTES {
            return Err(self.bad(&format!("the file has more than {FILE_MAX_BYTES} bytes")));
        }
        Ok(text)
    }

    pub(super) fn bad(&self, why: &str) -> BadTls {
        BadTls(format!("{} {} is not usable: {why}", self.flag, self.path.display()))
    }
}

/// The pair in two files: a certificate and its own key. [`Pair::in_time`] checks its validity.
pub(super) fn pair(certificate: (&File, &[u8]), key: (&File, &[u8])) -> Result<Pair, BadTls> {
    let (file, text) = certificate;
    let chain = certificates(file, text)?;
    let leaf = chain.first().ok_or_else(|| file.bad("the file has no certificate; expected PEM, BEGIN CERTIFICATE"))?;
    let (_, leaf) = X509Certificate::from_der(leaf)
        .map_err(|error| file.bad(&format!("the certificate cannot be read: {error}")))?;
    let (not_before, not_after) = (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    let (key_file, text) = key;
    let key = PrivateKeyDer::from_pem_slice(text).map_err(|error| {
        if matches!(error, pem::Error::NoItemsFound) {
            return key_file.bad("the file has no private key; expected PEM, BEGIN PRIVATE KEY");
        }
        key_file.bad(&format!("the file is not PEM: {error}"))
    })?;
    let certified = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            let whose = format!("the key does not belong to the certificate in {} {}", file.flag, file.path.display());
            return key_file.bad(&whose);
        }
        key_file.bad(&error.to_string())
    })?;
    Ok(Pair { certified: Arc::new(certified), not_before, not_after })
}

/// The authorities in a file: at least one.
pub(crate) fn authorities(file: &File, text: &[u8]) -> Result<RootCertStore, BadTls> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, text)? {
        roots
            .add(certificate)
            .map_err(|error| file.bad(&format!("a certificate in the file is not an authority: {error}")))?;
    }
    if roots.is_empty() {
        return Err(file.bad(
            "the file has no certificate; expected the certificates of the authorities as PEM, BEGIN CERTIFICATE",
        ));
    }
    Ok(roots)
}

fn certificates(file: &File, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadTls> {
    let read = CertificateDer::pem_slice_iter(text).collect::<Result<_, _>>();
    read.map_err(|error| file.bad(&format!("the file is not PEM: {error}")))
}
