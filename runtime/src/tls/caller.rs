//! The client side: TLS to the graph service, and the token of requests.

use std::fmt;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::HeaderValue;
use hyper_util::client::legacy::connect::{Connected, Connection};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::files::{self, BadTls, File, Pair};
use super::flags::CallerFlags;
use super::reasons::Words;
use super::server::Trouble;
use super::token::Token;

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// The first byte of a TLS server's answer to plaintext: an alert. An HTTP/2 frame with this first byte would have a
/// length of a megabyte, and the first frame is never that long.
const ALERT: u8 = 0x15;

/// The flag of the authorities of a graph service. With it, an address without a scheme is called over TLS.
const CA_FLAG: &str = "--tls-ca";

/// How to call a service. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Caller(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tls: Option<Tls>,
    token: Option<Token>,
    /// For a server that is not a graph service, only the address asks for TLS.
    is_foreign: bool,
}

#[derive(Debug)]
struct Tls {
    files: Files,
    /// The name in the certificate, if it is not the host.
    server_name: Option<ServerName<'static>>,
    name_flag: &'static str,
    current: RwLock<Current>,
}

#[derive(Debug)]
struct Files {
    ca: Option<File>,
    /// The flag of the authorities, whether it is set or not.
    ca_flag: &'static str,
    /// The protocols to offer. None: the server chooses HTTP/1.1.
    protocols: &'static [&'static [u8]],
    pair: Option<(File, File)>,
    /// The certificate to show without a pair.
    certificate: Option<Arc<dyn ResolvesClientCert>>,
}

/// A server that is not a graph service: each flag about it, with its value.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'a> {
    /// The flag with the address. The certificate must be valid for the host of that address.
    pub address_flag: &'static str,
    pub ca: (&'static str, Option<&'a Path>),
    pub token: (&'static str, Option<&'a Path>),
}

/// The credentials that a caller has in memory instead of in files. Flags win. Without TLS none of them is used.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The kind and the name of the origin of the server's authorities, and these as PEM.
    pub authorities: Option<((&'static str, String), Vec<u8>)>,
    /// The client certificate.
    pub certificate: Option<Arc<dyn ResolvesClientCert>>,
    /// The `authorization` header of requests. Its owner may replace it.
    pub authorization: Option<Arc<Mutex<Option<HeaderValue>>>>,
}

#[derive(Debug)]
struct Current {
    texts: Texts,
    config: Arc<ClientConfig>,
    trouble: Trouble,
}

#[derive(Debug, PartialEq, Eq)]
struct Texts {
    ca: Option<Vec<u8>>,
    pair: Option<(Vec<u8>, Vec<u8>)>,
}

impl Caller {
    /// Plaintext without a token.
    pub fn plaintext() -> Caller {
        Caller::default()
    }

    /// Reads and checks the files of the flags. `is_tls` is the result of [`CallerFlags::is_tls`]; `server_name` is the
    /// value of the flag `name_flag`.
    pub async fn open(flags: &CallerFlags, is_tls: bool, name: (&'static str, Option<&str>)) -> Result<Caller, BadTls> {
        Caller::open_with(flags, Held::default(), is_tls, name).await
    }

    /// The same, with what no flag gives from `held`.
    pub async fn open_with(
        flags: &CallerFlags,
        held: Held,
        is_tls: bool,
        (name_flag, server_name): (&'static str, Option<&str>),
    ) -> Result<Caller, BadTls> {
        let token = match &flags.token_file {
            Some(path) => Some(Token::open("--token-file", path).await?),
            None => held.authorization.filter(|_| is_tls).map(Token::Held),
        };
        if !is_tls {
            return Ok(Caller(Arc::new(Inner { tls: None, token, is_foreign: false })));
        }
        let server_name = server_name.map(|name| {
            let parsed = ServerName::try_from(name.to_owned());
            parsed.map_err(|_| BadTls(format!("{name_flag} {name:?} is neither a host name nor an IP address")))
        });
        let server_name = server_name.transpose()?;
        let given = flags.tls_ca.as_ref().map(|path| File::new(CA_FLAG, path));
        let ca = given.or_else(|| held.authorities.map(|(from, text)| File::held(from, text)));
        let (pair, certificate) = (flags.pair(), held.certificate);
        let files = Files { ca, ca_flag: CA_FLAG, protocols: &[b"h2"], pair, certificate };
        let tls = Tls::open(files, server_name, name_flag).await?;
        Ok(Caller(Arc::new(Inner { tls: Some(tls), token, is_foreign: false })))
    }

    /// Reads and checks the files for a server that is not a graph service, and is called over HTTP/1.1.
    pub async fn open_foreign(flags: Foreign<'_>, is_tls: bool) -> Result<Caller, BadTls> {
        let Foreign { address_flag, ca: (ca_flag, ca), token: (token_flag, token) } = flags;
        let token = match token {
            Some(path) => Some(Token::open(token_flag, path).await?),
            None => None,
        };
        let ca = ca.map(|path| File::new(ca_flag, path));
        let files = Files { ca, ca_flag, protocols: &[], pair: None, certificate: None };
        let tls = if is_tls { Some(Tls::open(files, None, address_flag).await?) } else { None };
        Ok(Caller(Arc::new(Inner { tls, token, is_foreign: true })))
    }

    /// A server that is called over HTTP/1.1, and whose authorities are in memory. `field` names them in messages.
    /// `None`: the authorities of this machine.
    pub fn open_held(field: &'static str, authorities: Option<Vec<u8>>) -> Result<Caller, BadTls> {
        let ca = authorities.clone().map(|text| File::held((field, String::new()), text));
        let files = Files { ca, ca_flag: field, protocols: &[], pair: None, certificate: None };
        let tls = Tls::of(files, Texts { ca: authorities, pair: None }, None, field)?;
        Ok(Caller(Arc::new(Inner { tls: Some(tls), token: None, is_foreign: true })))
    }

    /// Whether connections are TLS.
    pub fn is_tls(&self) -> bool {
        self.0.tls.is_some()
    }

    /// Whether requests carry a token.
    pub fn has_token(&self) -> bool {
        self.0.token.is_some()
    }

    /// The `authorization` header of requests, if there is a token.
    pub async fn authorization(&self) -> Option<HeaderValue> {
        match &self.0.token {
            Some(token) => token.header().await,
            None => None,
        }
    }

    /// Reads the certificate as if it had been valid at the time of the read. For tests.
    #[cfg(test)]
    pub(super) fn take_unchecked(&self, certificate: &str, key: &str) {
        let Tls { files, current, .. } = self.0.tls.as_ref().unwrap();
        let mut current = current.write().unwrap();
        let bad = Texts { ca: current.texts.ca.clone(), pair: Some((certificate.into(), key.into())) };
        current.config = files.configure(&bad, files.pair(&bad).unwrap()).unwrap();
    }

    /// Secures an open connection: TLS with the current certificates, or plaintext. `address` is for messages, `host`
    /// is the name in the certificate. All errors are sentences for users.
    pub async fn secure<IO>(&self, io: IO, address: &str, host: &str) -> io::Result<Secured<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Some(tls) = &self.0.tls else {
            let ca_flag = if self.0.is_foreign { "" } else { CA_FLAG };
            let words = Words { address: address.to_owned(), ca: None, ca_flag, certificate: None, name_flag: "" };
            let stream = Stream::Plaintext { io, is_known: false };
            return Ok(Secured { stream, words, complaint: Complaint::default() });
        };
        let words = tls.words(address);
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => {
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let parsed = ServerName::try_from(host.to_owned());
                parsed.map_err(|_| invalid(format!("{host:?} is not a valid name in a certificate")))?
            }
        };
        let config = tls.config().await;
        let connecting = timeout(HANDSHAKE_WITHIN, TlsConnector::from(config).connect(name, io)).await;
        let connected = connecting.unwrap_or_else(|_| {
            let why = format!("{address} did not complete the TLS handshake within {} s", HANDSHAKE_WITHIN.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        });
        match connected {
            Ok(stream) => Ok(Secured { stream: Stream::Tls(Box::new(stream)), words, complaint: Complaint::default() }),
            Err(error) => Err(words.of(error)),
        }
    }
}

impl Tls {
    async fn open(
        files: Files,
        server_name: Option<ServerName<'static>>,
        name_flag: &'static str,
    ) -> Result<Tls, BadTls> {
        let texts = files.read().await?;
        Tls::of(files, texts, server_name, name_flag)
    }

    fn of(
        files: Files,
        texts: Texts,
        server_name: Option<ServerName<'static>>,
        name_flag: &'static str,
    ) -> Result<Tls, BadTls> {
        let config = files.load(&texts)?;
        let current = RwLock::new(Current { texts, config, trouble: Trouble::default() });
        Ok(Tls { files, server_name, name_flag, current })
    }

    fn words(&self, address: &str) -> Words {
        Words {
            address: address.to_owned(),
            ca: self
                .files
                .ca
                .as_ref()
                .map(|file| format!("{} {}", file.flag, file.path.display()).trim_end().to_owned()),
            ca_flag: self.files.ca_flag,
            certificate: self.files.pair.as_ref().map(|(certificate, _)| certificate.path.display().to_string()),
            name_flag: self.name_flag,
        }
    }

    /// The configuration from the current files. If the files are not usable, the earlier configuration, because the
    /// peer can still refuse it.
    async fn config(&self) -> Arc<ClientConfig> {
        let read = self.files.read().await;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let loaded = match read {
            Ok(texts) if texts == current.texts => {
                current.trouble = Trouble::default();
                return Arc::clone(&current.config);
            }
            Ok(texts) => self.files.load(&texts).map(|config| (texts, config)),
            Err(why) => Err(why),
        };
        match loaded {
            Ok((texts, config)) => *current = Current { texts, config, trouble: Trouble::default() },
            Err(why) => {
                if current.trouble.lasts(&why) {
                    tracing::warn!(%why, "the changed TLS files are not usable; the earlier certificates remain in use; fix the files");
                }
            }
        }
        Arc::clone(&current.config)
    }
}

impl Files {
    async fn read(&self) -> Result<Texts, BadTls> {
        let ca = match &self.ca {
            Some(file) => Some(file.read().await?),
            None => None,
        };
        let pair = match &self.pair {
            Some((certificate, key)) => Some((certificate.read().await?, key.read().await?)),
            None => None,
        };
        Ok(Texts { ca, pair })
    }

    fn load(&self, texts: &Texts) -> Result<Arc<ClientConfig>, BadTls> {
        let pair = match (&self.pair, self.pair(texts)?) {
            (Some((certificate, _)), Some(pair)) => Some(pair.in_time(certificate)?),
            (None, _) | (_, None) => None,
        };
        self.configure(texts, pair)
    }

    fn pair(&self, texts: &Texts) -> Result<Option<Pair>, BadTls> {
        let files = self.pair.as_ref().zip(texts.pair.as_ref());
        files.map(|((certificate, key), (chain, secret))| files::pair((certificate, chain), (key, secret))).transpose()
    }

    fn configure(&self, texts: &Texts, pair: Option<Pair>) -> Result<Arc<ClientConfig>, BadTls> {
        let roots = match self.ca.as_ref().zip(texts.ca.as_deref()) {
            Some((file, text)) => files::authorities(file, text)?,
            None => machine_authorities(self.ca_flag)?,
        };
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), files::provider())
            .build()
            .map_err(|error| BadTls(format!("{} is not usable: {error}", self.ca_flag)))?;
        let builder = ClientConfig::builder_with_provider(files::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTls(error.to_string()))?
            .with_webpki_verifier(verifier);
        let mut config = match pair {
            Some(pair) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified))),
            None => match &self.certificate {
                Some(certificate) => builder.with_client_cert_resolver(Arc::clone(certificate)),
                None => builder.with_no_client_auth(),
            },
        };
        // A resumed session would not check the certificate again.
        config.resumption = Resumption::disabled();
        config.alpn_protocols = self.protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

fn machine_authorities(flag: &str) -> Result<RootCertStore, BadTls> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(BadTls(format!(
            "this machine has no certificate authorities: set {flag} to the file with the server's authority"
        )));
    }
    Ok(roots)
}

/// The TLS error of a broken connection. Without it, a caller that waits for an answer learns only that the connection
/// was closed. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Complaint(Arc<Mutex<Option<String>>>);

impl Complaint {
    /// Returns the sentence, once.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, sentence: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(sentence);
    }
}

/// A connection to a service. Its errors are sentences for users.
pub struct Secured<IO> {
    stream: Stream<IO>,
    words: Words,
    complaint: Complaint,
}

impl<IO> Secured<IO> {
    /// Stores the error of the connection in `complaint`.
    pub fn complaining(self, complaint: Complaint) -> Secured<IO> {
        Secured { complaint, ..self }
    }
}

enum Stream<IO> {
    Plaintext {
        io: IO,
        /// The peer has sent plaintext, so it does not use TLS.
        is_known: bool,
    },
    Tls(Box<tokio_rustls::client::TlsStream<IO>>),
}

impl<IO> fmt::Debug for Secured<IO> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secured").field("address", &self.words.address).finish_non_exhaustive()
    }
}

impl<IO> Connection for Secured<IO> {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secured<IO> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Secured { stream, words, complaint } = &mut *self;
        match stream {
            Stream::Tls(tls) => Pin::new(tls).poll_read(context, into).map_err(|error| {
                let is_tls = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
                let error = words.of(error);
                if is_tls {
                    complaint.put(error.to_string());
                }
                error
            }),
            Stream::Plaintext { io, is_known } => {
                let before = into.filled().len();
                ready!(Pin::new(io).poll_read(context, into))?;
                if let (false, Some(first)) = (*is_known, into.filled().get(before)) {
                    if *first == ALERT {
                        let error = words.speaks_tls();
                        complaint.put(error.to_string());
                        return Poll::Ready(Err(error));
                    }
                    *is_known = true;
                }
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secured<IO> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let Secured { stream, words, .. } = &mut *self;
        match stream {
            Stream::Tls(tls) => Pin::new(tls).poll_write(context, data).map_err(|error| words.of(error)),
            Stream::Plaintext { io, .. } => Pin::new(io).poll_write(context, data),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Secured { stream, words, .. } = &mut *self;
        match stream {
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(context, data).map_err(|error| words.of(error)),
            Stream::Plaintext { io, .. } => Pin::new(io).poll_write_vectored(context, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tls(tls) => tls.is_write_vectored(),
            Stream::Plaintext { io, .. } => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Secured { stream, words, .. } = &mut *self;
        match stream {
            Stream::Tls(tls) => Pin::new(tls).poll_flush(context).map_err(|error| words.of(error)),
            Stream::Plaintext { io, .. } => Pin::new(io).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Secured { stream, words, .. } = &mut *self;
        match stream {
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(context).map_err(|error| words.of(error)),
            Stream::Plaintext { io, .. } => Pin::new(io).poll_shutdown(context),
        }
    }
}
