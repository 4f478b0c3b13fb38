//! `version`: the versions of this program, the API server and the graph service.

use super::document::{Document, Kind};
use super::ending::{Answered, Ending};
use super::flags::{Format, Version};
use super::printer::Printer;
use super::questions::answered;
use super::service::{Need, Service};
use super::session::Session;
use anyhow::Context as _;
use proto::admin::v1beta1::GetStatusRequest;
use runtime::version::{COMMIT, VERSION};
use runtime::visible::line;
use serde_json::{Value, json};

const FORMATS: [Format; 3] = [Format::Table, Format::Json, Format::Yaml];
/// The package of the messages, which JSON and YAML carry too.
const SCHEMA: &str = "ownergraph.graph.v1beta1";

pub(super) async fn run(flags: Version) -> Answered {
    let mut text = format!("client   {VERSION} (commit {COMMIT})\nschema   {SCHEMA}\n");
    let client = json!({ "version": VERSION, "commit": COMMIT });
    let document = Document::new(Kind::Version).with("client", client).with("schema", SCHEMA.into());
    if flags.client {
        return show(&Printer::of(flags.asking.output, &FORMATS)?, &text, document, &[]);
    }
    let mut session = Session::open(flags.asking, &FORMATS).await?;
    let server = tokio::time::timeout(session.connection.request_timeout, session.cluster.client.apiserver_version());
    let server = server.await.context("the API server did not answer in time")?;
    let server = server.with_context(|| format!("{} cannot be reached", session.cluster.url))?.git_version;
    text.push_str(&format!("server   Kubernetes {}\n", line(&server)));
    let mut found = Value::Null;
    match Service::connect(&mut session, Need::Service).await {
        Ok(mut service) => {
            let status = answered(service.within, service.admin.get_status(GetStatusRequest {})).await?;
            let replica = status.meta.map(|meta| meta.replica).unwrap_or_default();
            let (version, commit) = (status.version, status.commit);
            let shown = [&version, &commit, &replica].map(|part| line(part));
            text.push_str(&format!("service  {} (commit {}, replica {})\n", shown[0], shown[1], shown[2]));
            found = json!({ "version": version, "commit": commit, "replica": replica });
        }
        Err(_) => text.push_str("service  none was found\n"),
    }
    show(&session.printer, &text, document.with("server", server.into()).with("service", found), &session.incomplete)
}

fn show(printer: &Printer, text: &str, document: Document, incomplete: &[String]) -> Answered {
    if matches!(printer.format, Format::Json | Format::Yaml) {
        printer.print_document(document, incomplete)?;
    } else {
        printer.print(text)?;
    }
    Ok(Ending::Fine)
}
