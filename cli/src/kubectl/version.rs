//! `version`: the versions of this program, the API server and the graph service.

use super::document::{Document, Kind};
use super::ending::{Answered, Ending};
use super::flags::{Format, Version};
use super::questions::answered;
use super::service::{Need, Service};
use super::session::Session;
use anyhow::Context as _;
use proto::admin::v1beta1::GetStatusRequest;
use runtime::visible::line;
use serde_json::{Value, json};

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Yaml];
/// The package of the messages, which JSON and YAML carry too.
const SCHEMA: &str = "ownergraph.graph.v1beta1";

pub(super) async fn run(flags: Version) -> Answered {
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let client = env!("CARGO_PKG_VERSION");
    let mut text = format!("client   {client}\nschema   {SCHEMA}\n");
    let mut document = Document::new(Kind::Version).with("client", client.into()).with("schema", SCHEMA.into());
    if !flags.client {
        let server =
            tokio::time::timeout(session.connection.request_timeout, session.cluster.client.apiserver_version());
        let server = server.await.context("the API server did not answer in time")?;
        let server = server.with_context(|| format!("{} cannot be reached", session.cluster.url))?.git_version;
        text.push_str(&format!("server   Kubernetes {}\n", line(&server)));
        document = document.with("server", server.into());
        let mut found = Value::Null;
        match Service::connect(&mut session, Need::Service).await {
            Ok(mut service) => {
                let status = answered(service.within, service.admin.get_status(GetStatusRequest {})).await?;
                let replica = status.meta.map(|meta| meta.replica).unwrap_or_default();
                text.push_str(&format!("service  {} (replica {})\n", line(&status.version), line(&replica)));
                found = json!({ "version": status.version, "replica": replica });
            }
            Err(_) => text.push_str("service  none was found\n"),
        }
        document = document.with("service", found);
    }
    match session.format {
        Format::Json | Format::Yaml => session.print_document(document)?,
        Format::Table | Format::Wide | Format::Tree | Format::Name | Format::Dot | Format::Mermaid | Format::Ndjson => {
            session.print(&text)?
        }
    }
    Ok(Ending::Fine)
}
