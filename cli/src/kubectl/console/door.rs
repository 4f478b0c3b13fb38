//! Who may call. A console on this machine has a token: a page of another origin cannot read it, so it cannot call for
//! the user. The address that the console prints has a ticket instead, which the page exchanges for the token once: an
//! address is in the arguments of the browser, where other users of the machine can read it. A console for other users
//! takes the token of the user from each request. A name that an attacker points at this server is not a host of it.

use super::bearer::Bearer;
use crate::kubectl::flags::PublicUrl;
use http::header::{HOST, HeaderName, HeaderValue, ORIGIN};
use http::{HeaderMap, Method, Request, StatusCode};
use kube_api::path::query_value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use subtle::ConstantTimeEq as _;

const TOKEN: HeaderName = HeaderName::from_static("x-ownergraph-token");
const TOKEN_BYTES: usize = 32;
/// The port that browsers leave out of `Host` and `Origin`.
const DEFAULT_PORT: u16 = 80;

pub(super) struct Door {
    /// Where the page is: the only values of `Host` and `Origin`.
    places: Vec<Place>,
    key: Key,
}

struct Place {
    host: String,
    origin: String,
}

/// The credentials that open the door.
enum Key {
    /// The token of this console, and the ticket of the next page.
    Own { token: String, ticket: Mutex<String> },
    /// Any token: the API server and the graph service know what its holder may do.
    Each,
}

/// Whose credentials a request uses.
#[derive(Debug)]
pub(super) enum Caller {
    /// Those of the command line.
    Own,
    With(Bearer),
}

/// Why a request is refused, as a sentence.
pub(super) type Refusal = (StatusCode, String);

impl Door {
    /// For this machine. Draws a token and a ticket.
    pub(super) fn new(port: u16) -> Result<Door, getrandom::Error> {
        let key = Key::Own { token: random()?, ticket: Mutex::new(random()?) };
        let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
        let place = |host: &str| Place { host: format!("{host}{port}"), origin: format!("http://{host}{port}") };
        Ok(Door { places: ["127.0.0.1", "localhost"].map(place).into(), key })
    }

    /// For other users, who open one of these addresses.
    pub(super) fn public(urls: &[PublicUrl]) -> Door {
        let place = |url: &PublicUrl| Place { host: url.host().to_owned(), origin: url.origin().to_owned() };
        Door { places: urls.iter().map(place).collect(), key: Key::Each }
    }

    /// Whether requests carry the credentials of their users.
    pub(super) fn is_public(&self) -> bool {
        matches!(self.key, Key::Each)
    }

    /// The address of the page in this namespace, with the ticket if there is one. A browser does not send the part
    /// after the `#`.
    pub(super) fn link(&self, namespace: Option<&str>) -> String {
        let origin = self.places.first().map_or("", |place| &place.origin);
        let query = namespace.map(|namespace| format!("?in={}", query_value(namespace))).unwrap_or_default();
        match &self.key {
            Key::Own { ticket, .. } => format!("{origin}/{query}#token={}", *held(ticket)),
            Key::Each => format!("{origin}/{query}"),
        }
    }

    /// Refuses requests to another host, and of pages of another origin.
    pub(super) fn host_refusal<B>(&self, request: &Request<B>) -> Option<Refusal> {
        let headers = request.headers();
        let place_of = |text: &[u8]| self.places.iter().find(|place| place.host.as_bytes() == text);
        let place = only(headers, &HOST).and_then(|host| place_of(host.as_bytes()));
        let elsewhere =
            request.uri().authority().is_some_and(|authority| place_of(authority.as_str().as_bytes()).is_none());
        let Some(place) = place.filter(|_| !elsewhere) else {
            let hosts = self.places.iter().map(|place| place.host.as_str()).collect::<Vec<_>>().join(" or ");
            let open = if self.is_public() { "open one of these" } else { "open the address that the console printed" };
            return forbidden(format!("the request is for another host than {hosts}: {open}"));
        };
        let mut origins = headers.get_all(ORIGIN).iter();
        // A proxy may add the token of a user to requests of any page. A browser names the page in each POST.
        let is_named = !self.is_public() || request.method() != Method::POST || headers.contains_key(ORIGIN);
        if !is_named || origins.any(|origin| origin.as_bytes() != place.origin.as_bytes()) {
            return forbidden(
                "the request comes from a page of another origin, and only the console's own page may call".to_owned(),
            );
        }
        None
    }

    /// Exchanges the ticket of a request for the token. The ticket is void after that, and there is a new one.
    pub(super) fn open<B>(&self, request: &Request<B>) -> Result<String, Refusal> {
        let Key::Own { token, ticket } = &self.key else {
            return Err((
                StatusCode::NOT_FOUND,
                "this console has no ticket; send the user's token in the Authorization header".to_owned(),
            ));
        };
        let given = only(request.headers(), &TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
        let mut ticket = held(ticket);
        if !bool::from(given.ct_eq(ticket.as_bytes())) {
            let sentence = "this address was opened before: open the newest address that the console printed";
            return Err((StatusCode::UNAUTHORIZED, sentence.to_owned()));
        }
        *ticket = random()
            .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("no random ticket can be drawn: {error}")))?;
        Ok(token.clone())
    }

    /// Whose credentials a request uses. Refuses those without a token.
    pub(super) fn caller<B>(&self, request: &Request<B>) -> Result<Caller, Refusal> {
        let refused = |sentence: &str| Err((StatusCode::UNAUTHORIZED, sentence.to_owned()));
        match &self.key {
            Key::Own { token, .. } => {
                let given = only(request.headers(), &TOKEN).map(HeaderValue::as_bytes).unwrap_or_default();
                if bool::from(given.ct_eq(token.as_bytes())) {
                    return Ok(Caller::Own);
                }
                refused(
                    "the header X-Ownergraph-Token does not have the token of this console: open the newest address that the console printed",
                )
            }
            Key::Each => match Bearer::of(request.headers()) {
                Some(bearer) => Ok(Caller::With(bearer)),
                None => refused("the request has no token: log in with a token for the API server"),
            },
        }
    }
}

/// Draws a token.
fn random() -> Result<String, getrandom::Error> {
    let mut random = [0; TOKEN_BYTES];
    getrandom::fill(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// No holder of the lock panics, and a ticket is whole in any case.
fn held(ticket: &Mutex<String>) -> MutexGuard<'_, String> {
    ticket.lock().unwrap_or_else(PoisonError::into_inner)
}

fn forbidden(sentence: String) -> Option<Refusal> {
    Some((StatusCode::FORBIDDEN, sentence))
}

/// The value of a header that stands once.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h HeaderValue> {
    let mut given = headers.get_all(name).iter();
    given.next().filter(|_| given.next().is_none())
}
