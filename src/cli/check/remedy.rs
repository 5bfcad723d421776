//! Remedies in the runtime's configuration: its keys depend on the runtime and its version.

use crate::io::diagnostics::Diagnostics;
use crate::model::endpoint::Framing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runtime {
    /// containerd 1.x
    Containerd1,
    /// containerd 2.x, or one that does not answer.
    Containerd,
    CriO,
    /// The built-in one.
    Edged,
    /// Another one.
    Other,
}

/// If the runtime does not answer, the name of its socket tells which one it is.
fn runtime(facts: &Diagnostics) -> Runtime {
    if facts.config.runtime.framing != Framing::Grpc {
        return Runtime::Edged;
    }
    let Some(Ok((version, _))) = &facts.runtime else {
        let name = facts.config.runtime.socket.rsplit('/').next().unwrap_or_default();
        return if name.starts_with("crio") { Runtime::CriO } else { Runtime::Containerd };
    };
    match version.runtime_name.as_str() {
        "containerd" if version.runtime_version.trim_start_matches('v').starts_with("1.") => {
            Runtime::Containerd1
        }
        "containerd" => Runtime::Containerd,
        "cri-o" => Runtime::CriO,
        _ => Runtime::Other,
    }
}

/// For a machine on which `oom_score_adj` may not be lowered.
pub(super) fn oom_score_adj(facts: &Diagnostics) -> &'static str {
    match runtime(facts) {
        Runtime::Containerd1 => {
            "in containerd's config.toml, under [plugins.\"io.containerd.grpc.v1.cri\"], set \
             restrict_oom_score_adj = true; or run both with CAP_SYS_RESOURCE"
        }
        Runtime::Containerd => {
            "in containerd's config.toml, under [plugins.\"io.containerd.cri.v1.runtime\"] (where \
             its version is 2: [plugins.\"io.containerd.grpc.v1.cri\"]), set \
             restrict_oom_score_adj = true; or run both with CAP_SYS_RESOURCE"
        }
        Runtime::CriO => "CRI-O has no setting for it: run it and edged with CAP_SYS_RESOURCE",
        Runtime::Edged | Runtime::Other => "run the runtime and edged with CAP_SYS_RESOURCE",
    }
}

/// For a socket where no runtime answers.
pub(super) fn no_answer(facts: &Diagnostics) -> &'static str {
    match runtime(facts) {
        Runtime::Containerd | Runtime::Containerd1 => {
            "start the runtime, or say where it is with --runtime or containerRuntimeEndpoint; \
             containerd must not have \"cri\" among its disabled_plugins"
        }
        Runtime::Edged => "start it with edged runtime, or both with edged-run",
        Runtime::CriO | Runtime::Other => {
            "start the runtime, or say where it is with --runtime or containerRuntimeEndpoint"
        }
    }
}
