//! The token that a request carries. The console sends it on to the API server and to the graph service, and keeps it
//! for the length of the request only.

use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, Request};
use kube::Client;
use kube::client::Body;
use kube_api::Cluster;

/// Maximum size of a token. Those of an identity provider that names many groups have some KiB.
const TOKEN_MAX_BYTES: usize = 32 << 10;
const SCHEME: &[u8] = b"bearer ";

/// The credentials of one request, as the header that carries them.
#[derive(Clone, Debug)]
pub(super) struct Bearer(HeaderValue);

impl Bearer {
    /// The token of a request, if it has exactly one.
    pub(super) fn of(headers: &HeaderMap) -> Option<Bearer> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let only = given.next().filter(|_| given.next().is_none())?;
        let (scheme, token) = only.as_bytes().split_at_checked(SCHEME.len())?;
        let is_token = (1..=TOKEN_MAX_BYTES).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
        if !scheme.eq_ignore_ascii_case(SCHEME) || !is_token {
            return None;
        }
        let mut header = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
        // The token must not appear in a log.
        header.set_sensitive(true);
        Some(Bearer(header))
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// The cluster with this token on each request. The connections are those of `cluster`, which has no credentials.
    pub(super) fn on(&self, cluster: &Cluster) -> Cluster {
        let (client, header) = (cluster.client.clone(), self.header());
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
            let client = client.clone();
            async move { client.send(request).await }
        });
        cluster.clone().through(Client::new(service, namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_token_or_none() {
        let bearer = |values: &[&[u8]]| {
            let values = values.iter().map(|value| (AUTHORIZATION, HeaderValue::from_bytes(value).unwrap()));
            Bearer::of(&HeaderMap::from_iter(values)).map(|bearer| bearer.header().to_str().unwrap().to_owned())
        };
        assert_eq!(bearer(&[b"Bearer a.b-c"]).as_deref(), Some("Bearer a.b-c"));
        assert_eq!(bearer(&[b"bearer a"]).as_deref(), Some("Bearer a"));
        let large = [b"Bearer ", vec![b'a'; TOKEN_MAX_BYTES + 1].as_slice()].concat();
        let none: [&[&[u8]]; 9] = [
            &[],
            &[b""],
            &[b"Bearer"],
            &[b"Bearer "],
            &[b"Basic YTpi"],
            &[b"Bearer a b"],
            &[b"Bearer a\xc3\xa4"],
            &[&large],
            &[b"Bearer a", b"Bearer a"],
        ];
        for values in none {
            assert_eq!(bearer(values), None, "{values:?}");
        }
        let shown = Bearer::of(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer secret"))]));
        assert!(!format!("{shown:?}").contains("secret"));
    }
}
