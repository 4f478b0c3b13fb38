//! Writes `docs/reference.md`, with every RPC, message, field and value of the API, from the comments in the `.proto`
//! files.

use anyhow::{Context, ensure};
use bounds::BOUNDS;
use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    ServiceDescriptorProto,
};
use std::collections::BTreeMap;
use std::fmt::Write;

mod bounds;

/// The numbers of fields in descriptor.proto. The paths of comments consist of them.
const FILE_MESSAGE: i32 = 4;
const FILE_ENUM: i32 = 5;
const FILE_SERVICE: i32 = 6;
const MESSAGE_FIELD: i32 = 2;
const MESSAGE_NESTED: i32 = 3;
const MESSAGE_ENUM: i32 = 4;
const ENUM_VALUE: i32 = 2;
const SERVICE_METHOD: i32 = 2;

const HEAD: &str = "# The API, call by call\n\nMade from the comments in `proto/`; `BLESS=1 cargo test -p tests --test together reference::` writes it again. \
The behavior as a whole is described in [queries](queries.md), [decisions](decisions.md) and [writing a subscriber](subscriber.md).\n";

/// Returns the whole page.
///
/// # Errors
/// An element of the API has no comment.
pub fn page() -> anyhow::Result<String> {
    let set = FileDescriptorSet::decode(proto::FILE_DESCRIPTOR_SET).context("the descriptors of the API")?;
    let mut page = String::from(HEAD);
    page.push_str("\n## Bounds\n\n| What | Bound |\n|---|---|\n");
    for (what, bound, _) in BOUNDS {
        writeln!(page, "| {what} | {bound} |")?;
    }
    for file in set.file.iter().filter(|file| file.package().starts_with("ownergraph.")) {
        File::new(file).write(&mut page)?;
    }
    Ok(page)
}

/// The tests that reach the bounds.
pub fn tests_of_bounds() -> impl Iterator<Item = &'static str> {
    BOUNDS.iter().map(|(.., test)| *test)
}

struct File<'a> {
    file: &'a FileDescriptorProto,
    comments: BTreeMap<&'a [i32], String>,
}

impl<'a> File<'a> {
    fn new(file: &'a FileDescriptorProto) -> File<'a> {
        let info = file.source_code_info.as_ref();
        let said = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().replace('|', "\\|");
        let comments = info.into_iter().flat_map(|info| &info.location).filter_map(|location| {
            location.leading_comments.as_ref().map(|text| (location.path.as_slice(), said(text)))
        });
        File { file, comments: comments.collect() }
    }

    fn comment(&self, path: &[i32], what: &str) -> anyhow::Result<&str> {
        let comment = self.comments.get(path).filter(|comment| !comment.is_empty());
        comment.map(String::as_str).with_context(|| format!("{what} has no comment in {}", self.file.name()))
    }

    fn write(&self, page: &mut String) -> anyhow::Result<()> {
        writeln!(page, "\n## {}", self.file.package())?;
        for (at, service) in (0..).zip(&self.file.service) {
            self.service(page, &[FILE_SERVICE, at], service)?;
        }
        for (at, message) in (0..).zip(&self.file.message_type) {
            self.message(page, &[FILE_MESSAGE, at], "", message)?;
        }
        for (at, values) in (0..).zip(&self.file.enum_type) {
            self.values(page, &[FILE_ENUM, at], "", values)?;
        }
        Ok(())
    }

    fn service(&self, page: &mut String, path: &[i32], service: &ServiceDescriptorProto) -> anyhow::Result<()> {
        let name = service.name();
        writeln!(page, "\n### service {name}\n\n{}\n", self.comment(path, name)?)?;
        writeln!(page, "| Call | Takes | Gives | |\n|---|---|---|---|")?;
        for (at, method) in (0..).zip(&service.method) {
            let stream = |streams: bool| if streams { "stream of " } else { "" };
            let (takes, gives) = (stream(method.client_streaming()), stream(method.server_streaming()));
            let said = self.comment(&below(path, SERVICE_METHOD, at), method.name())?;
            let (request, response) = (self.link(method.input_type()), self.link(method.output_type()));
            writeln!(page, "| {} | {takes}{request} | {gives}{response} | {said} |", method.name())?;
        }
        Ok(())
    }

    fn message(&self, page: &mut String, path: &[i32], outer: &str, message: &DescriptorProto) -> anyhow::Result<()> {
        if message.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry) {
            return Ok(());
        }
        let name = format!("{outer}{}", message.name());
        writeln!(page, "\n### {name}\n\n{}", self.comment(path, &name)?)?;
        if !message.field.is_empty() {
            writeln!(page, "\n| Field | Type | |\n|---|---|---|")?;
        }
        for (at, field) in (0..).zip(&message.field) {
            let said = self.comment(&below(path, MESSAGE_FIELD, at), &format!("{name}.{}", field.name()))?;
            let one = field.oneof_index.filter(|_| !field.proto3_optional()).and_then(|at| usize::try_from(at).ok());
            let one = one.and_then(|at| message.oneof_decl.get(at)).map(|one| format!("one of `{}`: ", one.name()));
            let kind = self.kind(message, field)?;
            writeln!(page, "| {} = {} | {kind} | {}{said} |", field.name(), field.number(), one.unwrap_or_default())?;
        }
        let outer = format!("{name}.");
        for (at, nested) in (0..).zip(&message.nested_type) {
            self.message(page, &below(path, MESSAGE_NESTED, at), &outer, nested)?;
        }
        for (at, values) in (0..).zip(&message.enum_type) {
            self.values(page, &below(path, MESSAGE_ENUM, at), &outer, values)?;
        }
        Ok(())
    }

    fn values(&self, page: &mut String, path: &[i32], outer: &str, values: &EnumDescriptorProto) -> anyhow::Result<()> {
        let name = format!("{outer}{}", values.name());
        writeln!(page, "\n### {name}\n\n{}\n\n| Value | |\n|---|---|", self.comment(path, &name)?)?;
        for (at, value) in (0..).zip(&values.value) {
            let said = self.comment(&below(path, ENUM_VALUE, at), value.name())?;
            writeln!(page, "| {} = {} | {said} |", value.name(), value.number())?;
        }
        Ok(())
    }

    fn kind(&self, message: &DescriptorProto, field: &FieldDescriptorProto) -> anyhow::Result<String> {
        let entry = |nested: &&DescriptorProto| field.type_name().ends_with(&format!(".{}", nested.name()));
        let is_map = |nested: &&DescriptorProto| nested.options.as_ref().is_some_and(|options| options.map_entry());
        if let Some(entry) = message.nested_type.iter().filter(is_map).find(entry) {
            let [key, value] = entry.field.as_slice() else { anyhow::bail!("{} is no map entry", entry.name()) };
            return Ok(format!("map of {} to {}", self.plain(key)?, self.plain(value)?));
        }
        let plain = self.plain(field)?;
        Ok(match field.label() {
            Label::Repeated => format!("list of {plain}"),
            Label::Optional if field.proto3_optional() => format!("optional {plain}"),
            Label::Optional | Label::Required => plain,
        })
    }

    fn plain(&self, field: &FieldDescriptorProto) -> anyhow::Result<String> {
        if matches!(field.r#type(), Type::Message | Type::Enum) {
            return Ok(self.link(field.type_name()));
        }
        let name = field.r#type().as_str_name().strip_prefix("TYPE_");
        ensure!(name.is_some(), "{} has a type without a name", field.name());
        Ok(name.unwrap_or_default().to_lowercase())
    }

    /// Returns a type as a link into this page, or by its full name if it is foreign.
    fn link(&self, full: &str) -> String {
        let full = full.trim_start_matches('.');
        let Some(ours) = full.strip_prefix("ownergraph.") else { return format!("`{full}`") };
        // package.version.Outer.Inner
        let name = ours.splitn(3, '.').nth(2).unwrap_or(ours);
        format!("[{name}](#{})", name.to_lowercase().replace('.', ""))
    }
}

fn below(path: &[i32], field: i32, at: i32) -> Vec<i32> {
    [path, &[field, at]].concat()
}
