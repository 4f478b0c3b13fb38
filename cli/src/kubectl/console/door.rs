//! Who may call. A page of another origin cannot read the token, so it cannot call for the user. A name that an
//! attacker points at this machine is not a host of this server.

use http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Request, StatusCode};
use subtle::ConstantTimeEq as _;

const TOKEN: HeaderName = HeaderName::from_static("x-ownergraph-token");
const TOKEN_BYTES: usize = 32;
/// The port that browsers leave out of `Host` and `Origin`.
const DEFAULT_PORT: u16 = 80;

pub(super) struct Door {
    /// The values of `Host` in requests to this server.
    hosts: [String; 2],
    token: String,
}

/// Why a request is refused, as a sentence.
pub(super) type Refusal = (StatusCode, String);

impl Door {
    /// Draws a token.
    pub(super) fn new(port: u16) -> Result<Door, getrandom::Error> {
        let mut random = [0; TOKEN_BYTES];
        getrandom::fill(&mut random)?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        Ok(Door { hosts: ["127.0.0.1", "localhost"].map(|host| format!("{host}{port}")), token })
    }

    /// The address of the page, with the token. A browser does not send the part after the `#`.
    pub(super) fn link(&self) -> String {
        format!("http://{}/#token={}", self.hosts[0], self.token)
    }

    /// Refuses requests to another host, and of pages of another origin.
    pub(super) fn host_refusal<B>(&self, request: &Request<B>) -> Option<Refusal> {
        let headers = request.headers();
        let is_ours = |text: &[u8]| self.hosts.iter().any(|host| host.as_bytes() == text);
        let host = only(headers, &HOST).filter(|host| is_ours(host.as_bytes()));
        let elsewhere = request.uri().authority().is_some_and(|authority| !is_ours(authority.as_str().as_bytes()));
        let Some(host) = host.filter(|_| !elsewhere) else {
            let hosts = self.hosts.join(" or ");
            return forbidden(format!(
                "the request is for another host than {hosts}: open the address that the console printed"
            ));
        };
        let own = [b"http://", host.as_bytes()].concat();
        if headers.get_all(ORIGIN).iter().any(|origin| origin.as_bytes() != own) {
            return forbidden(
                "the request comes from a page of another origin, and only the console's own page may call".to_owned(),
            );
        }
        None
    }

    /// Refuses requests without the token.
    pub(super) fn token_refusal<B>(&self, request: &Request<B>) -> Option<Refusal> {
        let given = only(request.headers(), &TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
        if bool::from(given.ct_eq(self.token.as_bytes())) {
            return None;
        }
        let sentence = "the header X-Ownergraph-Token does not have the token of this console: open the address that the console printed at its start";
        Some((StatusCode::UNAUTHORIZED, sentence.to_owned()))
    }
}

fn forbidden(sentence: String) -> Option<Refusal> {
    Some((StatusCode::FORBIDDEN, sentence))
}

/// The value of a header that stands once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut given = headers.get_all(name).iter();
    given.next().filter(|_| given.next().is_none())
}
