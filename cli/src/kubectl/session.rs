//! The environment of a query: credentials, the terminal, and the list of missing information.

use super::document::Document;
use super::ending::{Problem, note};
use super::flags::{Asking, Connection, Format};
use super::printer::Printer;
use super::requests;
use kube_api::Cluster;
use proto::r#type::v1beta1::ObjectFilter;
use std::io::{self, Write as _};

/// Clears a terminal.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";

/// One run of one command.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) cluster: Cluster,
    pub(super) connection: Connection,
    namespace: Option<String>,
    all_namespaces: bool,
    pub(super) format: Format,
    pub(super) printer: Printer,
    pub(super) incomplete: Vec<String>,
}

impl Session {
    /// Finds the credentials. Sends nothing yet. The first of `formats` is the default.
    pub(super) async fn open(asking: Asking, formats: &[Format]) -> Result<Session, Problem> {
        let printer = Printer::of(asking.output.clone(), formats)?;
        let cluster = requests::connect(&asking.connection).await?;
        Ok(Session::over(cluster, asking, printer))
    }

    /// The same on a cluster whose credentials are known.
    pub(super) fn over(cluster: Cluster, asking: Asking, printer: Printer) -> Session {
        let Asking { namespace, all_namespaces, connection, output: _ } = asking;
        let (format, incomplete) = (printer.format, Vec::new());
        Session { cluster, connection, namespace, all_namespaces, format, printer, incomplete }
    }

    /// The namespace of objects that are named without one.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(self.cluster.client.default_namespace())
    }

    pub(super) fn namespace_is_given(&self) -> bool {
        self.namespace.is_some()
    }

    /// The namespace to search: `None` for all, with the cluster-scoped objects.
    pub(super) fn searched(&self) -> Option<&str> {
        if self.all_namespaces { None } else { Some(self.namespace()) }
    }

    /// Returns the searched scope, in words.
    pub(super) fn where_searched(&self) -> String {
        self.searched().map_or("in any namespace".to_owned(), |namespace| format!("in namespace {namespace}"))
    }

    /// The filters for what is searched.
    pub(super) fn include(&self) -> Vec<ObjectFilter> {
        let only = |name: &str| ObjectFilter { namespaces: vec![name.to_owned()], ..Default::default() };
        self.searched().map(only).into_iter().collect()
    }

    /// Whether a snapshot answers instead of a cluster.
    pub(super) fn is_file(&self) -> bool {
        self.connection.from_file.is_some()
    }

    /// Prints a note that is not part of the answer.
    pub(super) fn note(&self, text: &str) {
        note(text);
    }

    /// Adds to the list of missing information, and prints it.
    pub(super) fn missed(&mut self, what: String) {
        if !self.incomplete.contains(&what) {
            self.note(&what);
            self.incomplete.push(what);
        }
    }

    pub(super) fn is_incomplete(&self) -> bool {
        !self.incomplete.is_empty()
    }

    /// Clears the terminal.
    pub(super) fn clear(&self) -> Result<(), Problem> {
        let mut out = io::stdout().lock();
        out.write_all(CLEAR.as_bytes())?;
        Ok(out.flush()?)
    }

    pub(super) fn print(&self, text: &str) -> Result<(), Problem> {
        self.printer.print(text)
    }

    /// Prints a table: a heading, and rows.
    pub(super) fn print_table(&self, text: &str) -> Result<(), Problem> {
        self.printer.print_table(text)
    }

    pub(super) fn headings(&self) -> bool {
        self.printer.headings
    }

    /// Prints the answer as a document. The document includes the list of missing information.
    pub(super) fn print_document(&self, document: Document) -> Result<(), Problem> {
        self.printer.print_document(document, &self.incomplete)
    }
}
