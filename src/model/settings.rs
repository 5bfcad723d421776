//! What the configuration says of how pods are run, beside what they say themselves.

/// The settings; KubeEdge's keys, below `modules.edged.tailoredKubeletConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSettings {
    /// `allowedUnsafeSysctls`: sysctls beyond the safe ones that pods may set; `*` at the end
    /// stands for all that begin so.
    pub allowed_sysctls: Vec<String>,
    /// `seccompDefault`: containers that name no seccomp profile get the runtime's.
    pub seccomp_default: bool,
}
