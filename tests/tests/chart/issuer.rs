//! An issuer of identities for OpenID Connect, on loopback. It gives an identity token for one refresh token.

use super::kubelet::secure;
use anyhow::Context;
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use http::StatusCode;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};
use tests::certificates::Authority;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const CLIENT: &str = "kubectl";
const SECRET: &str = "of-the-client";
const REFRESH: &str = "for-new-tokens";
const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct Issuer {
    url: String,
    /// The authority of the issuer's certificate.
    pub(super) authority: PathBuf,
    /// The token in a kubeconfig: an identity token that expired an hour ago.
    expired: String,
    refreshed: Arc<AtomicUsize>,
    _served: JoinSet<()>,
}

impl Issuer {
    /// Starts an issuer that knows one user.
    pub(super) async fn start(directory: &Path, user: &'static str) -> anyhow::Result<Issuer> {
        let authority = Authority::new("issuers")?;
        let file = directory.join("issuer-ca.crt");
        fs::write(&file, authority.pem())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("https://{}", listener.local_addr()?);
        let tls = secure(directory, "issuer", &authority).await?;
        let key = Arc::new(Key::new()?);
        let expired = key.token(&url, user, SystemTime::now() - HOUR)?;
        let refreshed = Arc::new(AtomicUsize::new(0));
        let router = router(url.clone(), user, key, Arc::clone(&refreshed));
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, service) = (Arc::clone(&tls), TowerToHyperService::new(router.clone()));
                connections.spawn(async move {
                    let accepted = tls.handshake(stream, None, runtime::tls::Protocol::Http1).await;
                    let Some((stream, _)) = accepted else { return };
                    let server = hyper::server::conn::http1::Builder::new();
                    // An error is the end of the connection, which the caller sees.
                    let _ended = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Issuer { url, authority: file, expired, refreshed, _served: served })
    }

    /// The flags with which kube-apiserver knows the users of this issuer, as `oidc:USER`.
    pub(super) fn apiserver_flags(&self) -> Vec<String> {
        vec![
            format!("--oidc-issuer-url={}", self.url),
            format!("--oidc-client-id={CLIENT}"),
            format!("--oidc-ca-file={}", self.authority.display()),
            "--oidc-username-claim=sub".to_owned(),
            "--oidc-username-prefix=oidc:".to_owned(),
            "--oidc-signing-algs=ES256".to_owned(),
        ]
    }

    /// The user in a kubeconfig.
    pub(super) fn user(&self) -> Value {
        json!({ "auth-provider": { "name": "oidc", "config": {
            "idp-issuer-url": self.url, "client-id": CLIENT, "client-secret": SECRET,
            "refresh-token": REFRESH, "id-token": self.expired,
        } } })
    }

    /// How many identity tokens it gave.
    pub(super) fn refreshed(&self) -> usize {
        self.refreshed.load(Ordering::SeqCst)
    }
}

fn router(url: String, user: &'static str, key: Arc<Key>, refreshed: Arc<AtomicUsize>) -> Router {
    let configuration = json!({
        "issuer": url, "jwks_uri": format!("{url}/keys"), "token_endpoint": format!("{url}/token"),
        "authorization_endpoint": format!("{url}/authorize"), "response_types_supported": ["code"],
        "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
    });
    let keys = json!({ "keys": [key.public()] });
    let asked = [format!("refresh_token={REFRESH}"), "grant_type=refresh_token".to_owned()];
    let token = move |form: String| async move {
        if !asked.iter().all(|field| form.split('&').any(|part| part == field)) {
            return Err((StatusCode::BAD_REQUEST, format!("not a refresh token of {user}")));
        }
        let token = key.token(&url, user, SystemTime::now() + HOUR);
        let token = token.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        refreshed.fetch_add(1, Ordering::SeqCst);
        Ok(Json(json!({ "id_token": token, "access_token": "none", "token_type": "Bearer", "expires_in": 3600 })))
    };
    Router::new()
        .route("/.well-known/openid-configuration", get(|| async { Json(configuration) }))
        .route("/keys", get(|| async { Json(keys) }))
        .route("/token", post(token))
}

struct Key(EcdsaKeyPair);

impl Key {
    fn new() -> anyhow::Result<Key> {
        let random = SystemRandom::new();
        let generated = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .ok()
            .context("no key was generated")?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, generated.as_ref(), &random);
        Ok(Key(key.map_err(anyhow::Error::msg)?))
    }

    /// The public key as a JSON Web Key.
    fn public(&self) -> Value {
        // A byte for the form, and the two coordinates.
        let point = &self.0.public_key().as_ref()[1..];
        let [x, y] = [&point[..32], &point[32..]].map(|part| BASE64.encode(part));
        json!({ "kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "key", "x": x, "y": y })
    }

    /// A signed identity token for this user, valid until then.
    fn token(&self, issuer: &str, user: &str, until: SystemTime) -> anyhow::Result<String> {
        let until = until.duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        let claims = json!({
            "iss": issuer, "aud": CLIENT, "sub": user, "iat": until - 2 * HOUR.as_secs(), "exp": until,
        });
        let head = json!({ "alg": "ES256", "typ": "JWT", "kid": "key" });
        let signed = [head, claims].map(|part| BASE64.encode(part.to_string())).join(".");
        let signature = self.0.sign(&SystemRandom::new(), signed.as_bytes()).ok().context("no token was signed")?;
        Ok(format!("{signed}.{}", BASE64.encode(signature)))
    }
}
