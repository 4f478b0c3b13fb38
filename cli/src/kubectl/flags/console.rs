//! The flags of `console`.

use super::Connection;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Console {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port: u16,
    /// Do not start a browser. Other users of this machine can see the address, and in it the token, on the command
    /// line of a browser.
    #[arg(long)]
    pub(crate) no_browser: bool,
    /// Only read: refuse deletions and changes of guards.
    #[arg(long)]
    pub(crate) read_only: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}
