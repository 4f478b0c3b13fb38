//! Compiles the protocol without an installed `protoc`.

use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 6] = [
    "ownergraph/type/v1beta1/type.proto",
    "ownergraph/work/v1beta1/work_service.proto",
    "ownergraph/graph/v1beta1/graph_service.proto",
    "ownergraph/admin/v1beta1/admin_service.proto",
    "ownergraph/decision/v1beta1/decision_service.proto",
    "ownergraph/cloudevents/v1/cloudevents.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=ownergraph");
    println!("cargo::rerun-if-changed=google");
    let mut compiler = protox::Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true).open_files(FILES)?;
    // Keeps comments and annotations for reflection clients.
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("ownergraph.bin"), compiler.encode_file_descriptor_set())?;
    let files = compiler.file_descriptor_set();
    // Ordered maps give each value one encoding.
    tonic_prost_build::configure().emit_rerun_if_changed(false).btree_map(".").compile_fds(files)?;
    Ok(())
}
