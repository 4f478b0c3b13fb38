//! The address of JetStream and the credentials for it.

use async_nats::ServerAddr;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::str::FromStr;

/// The configuration of a decision log on JetStream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JetStream {
    /// Addresses of one JetStream. Any of them may be used.
    pub servers: Vec<Server>,
    /// The leader grants nothing while the log cannot be written.
    pub required: bool,
}

/// The address of a NATS server. Its output never shows passwords and tokens.
#[derive(Clone, PartialEq, Eq)]
pub struct Server {
    /// Has no credentials, because the library logs addresses.
    address: ServerAddr,
    credentials: Option<Credentials>,
}

/// The credentials of this service.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    Password { user: String, password: String },
    Token(String),
}

impl FromStr for Server {
    type Err = &'static str;

    /// Reads `nats://[USER:PASSWORD@]HOST[:PORT]`, `nats://TOKEN@…`, or the same with `tls://`. Special characters are
    /// percent-encoded. The error does not repeat the text.
    fn from_str(text: &str) -> Result<Server, &'static str> {
        parse(text).ok_or("expected nats://[USER:PASSWORD@]HOST[:PORT], or a TOKEN@ instead, or tls:// for TLS")
    }
}

fn parse(text: &str) -> Option<Server> {
    let is_known = text.starts_with("nats://") || text.starts_with("tls://");
    let address = ServerAddr::from_str(text).ok().filter(|address| is_known && !address.host().is_empty())?;
    let mut url = address.into_inner();
    let is_plain = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    let read = |part: &str| percent_decode_str(part).decode_utf8().ok().map(String::from);
    let credentials = match (url.username(), url.password()) {
        ("", None) => None,
        (token, None) => Some(Credentials::Token(read(token)?)),
        (user, Some(password)) => Some(Credentials::Password { user: read(user)?, password: read(password)? }),
    };
    url.set_username("").ok()?;
    url.set_password(None).ok()?;
    let address = ServerAddr::from_url(url).ok()?;
    is_plain.then_some(Server { address, credentials })
}

impl Server {
    /// Whether other machines can read the traffic to this server.
    pub fn is_open_to_others(&self) -> bool {
        !self.address.tls_required() && !runtime::host::is_loopback(self.address.host())
    }

    /// Whether two addresses have different credentials. An address without credentials uses those of the others.
    pub fn contradicts(&self, other: &Server) -> bool {
        self.credentials.is_some() && other.credentials.is_some() && self.credentials != other.credentials
    }

    pub(super) fn address(&self) -> &ServerAddr {
        &self.address
    }

    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.address.scheme(), self.address.host(), self.address.port())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        text.parse().unwrap()
    }

    #[test]
    fn a_server_is_named_without_its_password() {
        let server = server("nats://us:e%40r@127.0.0.1");
        let shown = format!("{server} {server:?} {:?}", server.address());
        assert!(
            shown.starts_with("nats://127.0.0.1:4222 ") && !shown.contains("e%40r") && !shown.contains("e@r"),
            "{shown}"
        );
        let password = Credentials::Password { user: "us".to_owned(), password: "e@r".to_owned() };
        assert!(server.credentials() == Some(&password));
    }

    #[test]
    fn a_lone_word_before_the_host_is_a_token() {
        assert!(server("tls://s3cret@nats:4222").credentials() == Some(&Credentials::Token("s3cret".to_owned())));
        assert!(server("nats://nats").credentials().is_none());
        assert!(server("nats://a@one").contradicts(&server("nats://b@two")));
        assert!(!server("nats://a@one").contradicts(&server("nats://two")));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_without_being_repeated() {
        let bad = [
            "127.0.0.1:4222",
            "http://127.0.0.1:4222",
            "ws://127.0.0.1",
            "nats://",
            "nats://a b",
            "nats://u:secret@h/x",
        ];
        for text in bad {
            let error = text.parse::<Server>().unwrap_err();
            assert!(!error.contains("secret"), "{text}: {error}");
        }
    }

    #[test]
    fn only_plaintext_beyond_this_machine_is_open_to_others() {
        let open = |text: &str| server(text).is_open_to_others();
        assert!(!open("nats://localhost:4222") && !open("nats://[::1]:4222") && !open("tls://nats.example:4222"));
        assert!(open("nats://nats.example:4222") && open("nats://10.0.0.1"));
    }
}
