//! The parts around the work of each service: a clock, tasks, the metrics of its process, the admin port, and spans.

use crate::admin::{self, Guard, Probe};
use crate::clock::Clock;
use crate::metrics::Book;
use crate::process;
use crate::shutdown::Shutdown;
use crate::tasks::Tasks;
use crate::tls::{ServerTls, TlsMetrics};
use crate::traces::{self, BadTraces, Counts, Open, Recorder, Settings};
use crate::version::VERSION;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A service that starts.
#[derive(Debug)]
pub struct Service {
    pub clock: Clock,
    pub tasks: Tasks,
    shutdown: Shutdown,
    name: &'static str,
    instance: String,
    tls: Option<Arc<ServerTls>>,
}

impl Service {
    /// Creates a service. `instance` distinguishes its processes. `tls` has the certificates of its ports.
    pub fn new(name: &'static str, instance: &str, tls: Option<Arc<ServerTls>>, shutdown: Shutdown) -> Service {
        let instance = instance.to_owned();
        Service { clock: Clock::start(), tasks: Tasks::new(), shutdown, name, instance, tls }
    }

    /// Registers the metrics of the process and of TLS.
    pub fn register(&self, book: &mut Book<'_>) {
        self.tls.as_ref().map_or_else(TlsMetrics::default, |tls| tls.metrics().clone()).register(book);
        process::register(book);
    }

    /// Records spans, if the settings name a collector.
    pub fn record(
        &mut self,
        settings: Option<&Settings>,
        counts: &Counts,
    ) -> Result<Option<(Recorder, Open)>, BadTraces> {
        let Some(settings) = settings else { return Ok(None) };
        let (name, instance) = (self.name, self.instance.clone());
        let service = traces::Service { name, instance, version: VERSION };
        let (recorder, open, sending) = traces::start(settings, service, counts.clone(), self.shutdown.clone())?;
        self.tasks.spawn("traces", sending);
        Ok(Some((recorder, open)))
    }

    /// Serves the admin port. With certificates, the port uses TLS, the guard decides about visitors, and new files are
    /// read.
    pub fn serve_admin(&mut self, listener: Option<TcpListener>, probe: Arc<dyn Probe>, guard: Guard) {
        if let Some(tls) = &self.tls {
            self.tasks.spawn_until_end("TLS files", Arc::clone(tls).follow());
        }
        match (listener, self.tls.clone()) {
            (Some(listener), Some(tls)) => {
                self.tasks.spawn_until_end("admin", admin::serve_tls(listener, probe, tls, guard));
            }
            (Some(listener), None) => self.tasks.spawn_until_end("admin", admin::serve(listener, probe)),
            (None, _) => {}
        }
    }
}
