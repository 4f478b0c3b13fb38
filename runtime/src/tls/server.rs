//! The server side: new files apply to new handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{self, BadTls, File, Pair, date};
use super::flags::ServerFlags;
use super::identity::{Peer, PeerCertificate};
use super::metrics::TlsMetrics;
use super::reasons::Refused;

/// Time from the first byte to an established connection.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Time for which a refused peer may continue to send. An immediate close would reset the connection, and the peer
/// might never read the reason.
const LINGER_FOR: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 * 1024;
/// Interval of reads of the files. Kubernetes takes about a minute to update a changed Secret in a pod.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Names the authorities of [`ServerTls::trust_also`] in messages.
const ALSO: (&str, &str) = ("the cluster's", "client-ca-file");

/// The protocol above TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http2,
    Http1,
}

/// The certificates of a server.
#[derive(Debug)]
pub struct ServerTls {
    files: Files,
    current: RwLock<Current>,
    metrics: TlsMetrics,
}

#[derive(Debug)]
struct Files {
    certificate: File,
    key: File,
    client_ca: Option<File>,
    /// Authorities of client certificates from elsewhere, beside those of `client_ca`.
    also: RwLock<Option<Vec<u8>>>,
}

#[derive(Debug)]
struct Current {
    /// The content of the files behind `configs`.
    texts: Texts,
    http2: Arc<ServerConfig>,
    http1: Arc<ServerConfig>,
    not_after: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Texts {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    also: Option<Vec<u8>>,
}

/// A connection after its handshake.
pub type Accepted<IO> = (TlsStream<IO>, Peer);

impl ServerTls {
    /// Reads and checks the files of the flags; `None` if they name none.
    pub async fn open(flags: &ServerFlags) -> Result<Option<Arc<ServerTls>>, BadTls> {
        flags.check()?;
        let Some((certificate, key)) = flags.pair() else { return Ok(None) };
        let client_ca = flags.client_ca.as_ref().map(|path| File::new("--client-ca", path));
        let files = Files { certificate, key, client_ca, also: RwLock::default() };
        let texts = files.read().await?;
        let current = files.load(texts)?;
        let metrics = TlsMetrics::default();
        metrics.serves_until(current.not_after);
        Ok(Some(Arc::new(ServerTls { files, current: RwLock::new(current), metrics })))
    }

    /// The metrics of this server.
    pub fn metrics(&self) -> &TlsMetrics {
        &self.metrics
    }

    /// Whether callers may use client certificates.
    pub fn knows_callers(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Trusts client certificates of these authorities too, as PEM. [`ServerTls::follow`] applies it within seconds.
    /// Unusable authorities change nothing: they must not stop the reload of the files.
    pub fn trust_also(&self, authorities: Option<Vec<u8>>) -> Result<(), BadTls> {
        if let Some(text) = &authorities {
            files::authorities(&File::new(ALSO.0, ALSO.1), text)?;
        }
        *self.files.also.write().unwrap_or_else(PoisonError::into_inner) = authorities;
        Ok(())
    }

    /// Reads the files every few seconds, and applies changes to new connections. Never ends.
    pub async fn follow(self: Arc<Self>) -> anyhow::Result<()> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut trouble = Trouble::default();
        loop {
            looks.tick().await;
            match self.look().await {
                Ok(Some(not_after)) => {
                    self.metrics.reloaded(not_after);
                    let until = date(not_after);
                    tracing::info!(until, "reloaded the TLS files; new connections use them");
                    trouble = Trouble::default();
                }
                Ok(None) => trouble = Trouble::default(),
                Err(why) => {
                    if trouble.lasts(&why) {
                        self.metrics.reload_failed();
                        tracing::warn!(%why, "the changed TLS files are not usable; the earlier certificates remain in use; fix the files");
                    }
                }
            }
        }
    }

    /// Applies changed files. Returns the expiry of the new certificate.
    async fn look(&self) -> Result<Option<i64>, BadTls> {
        let texts = self.files.read().await?;
        let is_known = self.current().texts == texts;
        // A file may change between the first read and the last. The next read then finds all of them.
        if is_known || self.files.read().await? != texts {
            return Ok(None);
        }
        let next = self.files.load(texts)?;
        let not_after = next.not_after;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(Some(not_after))
    }

    /// Performs the TLS handshake. `None` on failure, which is counted, and logged once a minute for each reason.
    pub async fn handshake<IO>(&self, io: IO, from: Option<SocketAddr>, protocol: Protocol) -> Option<Accepted<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let config = match protocol {
            Protocol::Http2 => Arc::clone(&self.current().http2),
            Protocol::Http1 => Arc::clone(&self.current().http1),
        };
        let accepting = TlsAcceptor::from(config).accept(io).into_fallible();
        let refused = match timeout(HANDSHAKE_WITHIN, accepting).await {
            Ok(Ok(stream)) => {
                let peer = Peer::Tls(certificate_of(&stream));
                return Some((stream, peer));
            }
            Ok(Err((error, io))) => {
                let refused = Refused::of_server(&error);
                self.metrics.refused(&refused, from);
                // A peer that does not read to the end needs no further time.
                let _unread = timeout(LINGER_FOR, linger(io)).await;
                return None;
            }
            Err(_) => Refused::too_slow(HANDSHAKE_WITHIN),
        };
        self.metrics.refused(&refused, from);
        None
    }

    /// Reads the certificate as if it had been valid at the time of the read. For tests.
    #[cfg(test)]
    pub(super) fn take_unchecked(&self, certificate: &str, key: &str) {
        let mut current = self.current.write().unwrap();
        let bad = Texts { certificate: certificate.into(), key: key.into(), ..current.texts.clone() };
        let pair = self.files.pair(&bad).unwrap();
        *current = self.files.configure(current.texts.clone(), &pair).unwrap();
    }

    fn current(&self) -> std::sync::RwLockReadGuard<'_, Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn certificate_of<IO>(stream: &TlsStream<IO>) -> Option<Arc<PeerCertificate>> {
    let shown = stream.get_ref().1.peer_certificates()?.first()?;
    PeerCertificate::read(shown).map(Arc::new)
}

async fn linger<IO: AsyncRead + AsyncWrite + Unpin>(mut io: IO) -> io::Result<()> {
    io.shutdown().await?;
    tokio::io::copy(&mut io.take(LINGER_BYTES), &mut tokio::io::sink()).await?;
    Ok(())
}

/// An error of the files. It is logged once, and only if two consecutive reads fail, because files that are written one
/// after the other do not match for a moment.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    seen: Option<BadTls>,
    is_said: bool,
}

impl Trouble {
    /// Whether to log it now.
    pub(super) fn lasts(&mut self, why: &BadTls) -> bool {
        if self.seen.as_ref() != Some(why) {
            *self = Trouble { seen: Some(why.clone()), is_said: false };
            return false;
        }
        !std::mem::replace(&mut self.is_said, true)
    }
}

impl Files {
    async fn read(&self) -> Result<Texts, BadTls> {
        let client_ca = match &self.client_ca {
            Some(file) => Some(file.read().await?),
            None => None,
        };
        let (certificate, key) = (self.certificate.read().await?, self.key.read().await?);
        let also = self.also.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Texts { certificate, key, client_ca, also })
    }

    fn load(&self, texts: Texts) -> Result<Current, BadTls> {
        let pair = self.pair(&texts)?.in_time(&self.certificate)?;
        self.configure(texts, &pair)
    }

    fn pair(&self, texts: &Texts) -> Result<Pair, BadTls> {
        files::pair((&self.certificate, &texts.certificate), (&self.key, &texts.key))
    }

    fn configure(&self, texts: Texts, pair: &Pair) -> Result<Current, BadTls> {
        let builder = ServerConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTls(error.to_string()))?;
        let also = File::new(ALSO.0, ALSO.1);
        let trusted = [self.client_ca.as_ref().zip(texts.client_ca.as_deref()), Some(&also).zip(texts.also.as_deref())];
        let mut roots = RootCertStore::empty();
        for (file, text) in trusted.into_iter().flatten() {
            roots.roots.extend(files::authorities(file, text)?.roots);
        }
        let builder = if roots.is_empty() {
            builder.with_no_client_auth()
        } else {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), files::provider())
                .allow_unauthenticated()
                .build()
                .map_err(|error| BadTls(format!("the authorities of client certificates are not usable: {error}")))?;
            builder.with_client_cert_verifier(verifier)
        };
        let mut http2 = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&pair.certified))));
        // A resumed session would check neither the certificate nor its authority again.
        http2.session_storage = Arc::new(NoServerSessionStorage {});
        http2.send_tls13_tickets = 0;
        let mut http1 = http2.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Current { texts, http2: Arc::new(http2), http1: Arc::new(http1), not_after: pair.not_after })
    }
}
