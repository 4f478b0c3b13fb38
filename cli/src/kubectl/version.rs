//! `version`: the versions of this program, the API server and the graph service.

use super::document::{Document, Kind};
use super::ending::{Answered, Ending, Problem};
use super::flags::{Format, Version};
use super::printer::Printer;
use super::questions::answered;
use super::service::{Need, Service};
use super::session::Session;
use crate::failure::refusal;
use proto::admin::v1beta1::{GetStatusRequest, GetStatusResponse};
use runtime::cause::innermost;
use runtime::version::{COMMIT, VERSION};
use runtime::visible::line;
use serde_json::{Value, json};
use tokio::time::timeout;

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
    let server = if session.is_file() { Ok(None) } else { api_server(&session).await.map(Some) };
    match &server {
        Ok(Some(version)) => text.push_str(&format!("server   Kubernetes {}\n", line(version))),
        Ok(None) => text.push_str("server   none (snapshot)\n"),
        Err(_said_below) => {}
    }
    let service = if session.is_file() { Ok(None) } else { graph_service(&mut session).await };
    let mut found = Value::Null;
    match &service {
        Ok(Some(GetStatusResponse { version, commit, meta, .. })) => {
            let replica = meta.as_ref().map(|meta| meta.replica.clone()).unwrap_or_default();
            let shown = [version, commit, &replica].map(|part| line(part));
            text.push_str(&format!("service  {} (commit {}, replica {})\n", shown[0], shown[1], shown[2]));
            found = json!({ "version": version, "commit": commit, "replica": replica });
        }
        Ok(None) => text.push_str("service  none was found\n"),
        Err(_said_below) => {}
    }
    let known = server.as_ref().ok().cloned().flatten();
    show(&session.printer, &text, document.with("server", known.into()).with("service", found), &session.incomplete)?;
    if let (Err(_), Err(second)) = (&server, &service) {
        session.note(&second.to_string());
    }
    server.and(service)?;
    Ok(Ending::Fine)
}

async fn api_server(session: &Session) -> Result<String, Problem> {
    let url = &session.cluster.url;
    let asked = timeout(session.connection.request_timeout, session.cluster.client.apiserver_version()).await;
    let asked = asked.map_err(|_| Problem::TimedOut(format!("{url} did not answer in time")))?;
    let version = asked.map_err(|error| {
        Problem::sentence(if let kube::Error::Api(status) = &error {
            format!("{url} refuses its version: {}", refusal(status))
        } else {
            format!("{url} cannot be reached: {}", innermost(&error))
        })
    })?;
    Ok(version.git_version)
}

/// The status of the graph service. `None` if no flag names it and none is found; a note says why.
async fn graph_service(session: &mut Session) -> Result<Option<GetStatusResponse>, Problem> {
    match Service::connect(session, Need::Service).await {
        Ok(mut service) => answered(service.within, service.admin.get_status(GetStatusRequest {})).await.map(Some),
        Err(problem) if session.connection.is_named() => Err(problem),
        Err(problem) => {
            session.note(&problem.to_string());
            Ok(None)
        }
    }
}

fn show(printer: &Printer, text: &str, document: Document, incomplete: &[String]) -> Answered {
    if matches!(printer.format, Format::Json | Format::Yaml) {
        printer.print_document(document, incomplete)?;
    } else {
        printer.print(text)?;
    }
    Ok(Ending::Fine)
}
