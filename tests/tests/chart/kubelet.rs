//! The kubelet's part in forwarding a port: a WebSocket over TLS, with a channel for the bytes and one for errors.

use anyhow::Context;
use futures::{SinkExt as _, StreamExt as _};
use http::{Request, Response, StatusCode, header};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use runtime::tls::{Protocol, ServerFlags, ServerTls};
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tests::certificates::Authority;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// A kubelet whose pods all have their port at one address of this machine.
pub(super) struct Kubelet {
    pub(super) port: u16,
    _served: JoinSet<()>,
}

impl Kubelet {
    pub(super) async fn start(directory: &Path, pods: &str) -> anyhow::Result<Kubelet> {
        let tls = secure(directory, "kubelet", &Authority::new("nodes")?).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (port, pods) = (listener.local_addr()?.port(), pods.parse::<SocketAddr>()?);
        let mut served = JoinSet::new();
        served.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(connection(stream, Arc::clone(&tls), pods));
            }
        });
        Ok(Kubelet { port, _served: served })
    }
}

/// A server at 127.0.0.1 with a certificate of this authority. Its files are in the directory.
pub(super) async fn secure(directory: &Path, name: &str, authority: &Authority) -> anyhow::Result<Arc<ServerTls>> {
    let signed = authority.sign(name, &["127.0.0.1"])?;
    let write = |suffix: &str, text: &str| {
        let file = directory.join(format!("{name}.{suffix}"));
        fs::write(&file, text).map(|()| Some(file))
    };
    let flags = ServerFlags {
        tls_cert: write("crt", &signed.certificate)?,
        tls_key: write("key", &signed.key)?,
        client_ca: None,
    };
    ServerTls::open(&flags).await?.context("the flags ask for TLS")
}

async fn connection(stream: TcpStream, tls: Arc<ServerTls>, pods: SocketAddr) {
    let Some((stream, _)) = tls.handshake(stream, None, Protocol::Http1).await else { return };
    let (sockets, mut upgraded) = mpsc::unbounded_channel();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let key = request.headers().get("sec-websocket-key").map(|key| derive_accept_key(key.as_bytes()));
        let sockets = sockets.clone();
        async move {
            let Some(key) = key else {
                return Ok::<_, Infallible>(answer(Response::builder().status(StatusCode::NOT_FOUND)));
            };
            // The connection ends if the relay is gone.
            let _gone = sockets.send(hyper::upgrade::on(&mut request));
            let switching = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
            let switching = switching.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, "websocket");
            Ok(answer(
                switching.header("sec-websocket-accept", key).header("sec-websocket-protocol", "v4.channel.k8s.io"),
            ))
        }
    });
    let server = hyper::server::conn::http1::Builder::new();
    // An error is the end of the connection, which the caller sees.
    let _ended = server.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    if let Some(upgrade) = upgraded.recv().await
        && let Ok(socket) = upgrade.await
    {
        relay(WebSocketStream::from_raw_socket(TokioIo::new(socket), Role::Server, None).await, pods).await;
    }
}

fn answer(head: http::response::Builder) -> Response<Empty<Bytes>> {
    head.body(Empty::new()).expect("the head is made of constants and a key in base64")
}

async fn relay(socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>, pods: SocketAddr) {
    let (mut out, mut from) = socket.split();
    let Ok(stream) = TcpStream::connect(pods).await else { return };
    let (mut read, mut write) = stream.into_split();
    // Each channel begins with its port.
    for channel in [0, 1] {
        if out.send(Message::binary(vec![channel, 0x1a, 0x1d])).await.is_err() {
            return;
        }
    }
    let down = async {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            if out.send(Message::binary([&[0], &buffer[..count]].concat())).await.is_err() {
                break;
            }
        }
    };
    let up = async {
        while let Some(Ok(Message::Binary(bytes))) = from.next().await {
            if bytes.first() == Some(&0) && write.write_all(&bytes[1..]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        () = down => {}
        () = up => {}
    }
}
