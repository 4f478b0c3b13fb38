//! Serves the server on a listener, or as a service in the same process.

use super::objects;
use super::server::{Server, Stopping};
use axum::Router;
use axum::serve::ListenerExt as _;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Longest time for connections to end after a shutdown. Then `serve` returns without them.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// Serves HTTP/1.1 on a listener until `shutdown` is ready. Then watches end, requests in progress are answered,
    /// and it returns.
    ///
    /// # Errors
    /// The listener fails.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let (stopping, stopped) = watch::channel(false);
        let router = self.router().layer(axum::Extension(Stopping(stopped.clone())));
        // Nagle's delay is off, because watch events are small and must not wait for the acknowledgement of the
        // previous one.
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let shutdown = async move {
            shutdown.await;
            stopping.send_replace(true);
        };
        let overdue = async move {
            let mut stopped = stopped;
            // An error means that the sender and the server below are gone.
            drop(stopped.wait_for(|stopped| *stopped).await);
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        tokio::select! {
            ended = axum::serve(listener, router).with_graceful_shutdown(shutdown) => ended,
            () = overdue => Ok(()),
        }
    }

    /// The server as a tower service, for clients in the same process: `kube::Client::new(server.router(), "default")`.
    pub fn router(&self) -> Router {
        Router::new().fallback(objects::handle).with_state(self.clone())
    }
}
