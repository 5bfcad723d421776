//! The upstream tests by name: those of Kubernetes 1.32's e2e suites with the tag `[Conformance]`
//! or `[NodeConformance]` that a single node could be asked.

/// A group of upstream tests, as their suite titles it.
pub(crate) struct Group {
    /// Title; those that two suites share have `volume` behind the storage suite's.
    pub(crate) area: &'static str,
    /// Their names.
    pub(crate) names: &'static [&'static str],
}

/// All of them.
pub(crate) const UPSTREAM: &[Group] = &[
    Group {
        area: "Pods",
        names: &[
            "should get a host IP",
            "should be submitted and removed",
            "should be updated",
            "should allow activeDeadlineSeconds to be updated",
            "should contain environment variables for services",
            "should support remote command execution over websockets",
            "should support retrieving logs from the container over websockets",
            "should have their auto-restart back-off timer reset on image update",
            "should cap back-off at MaxContainerBackOff",
            "should support pod readiness gates",
            "should delete a collection of pods",
            "should run through the lifecycle of Pods and PodStatus",
            "should patch a pod status",
        ],
    },
    Group {
        area: "InitContainer",
        names: &[
            "should invoke init containers on a RestartNever pod",
            "should invoke init containers on a RestartAlways pod",
            "should not start app containers if init containers fail on a RestartAlways pod",
            "should not start app containers and fail the pod if init containers fail on a \
             RestartNever pod",
        ],
    },
    Group {
        area: "Ephemeral Containers",
        names: &[
            "will start an ephemeral container in an existing pod",
            "should update the ephemeral containers in an existing pod",
        ],
    },
    Group {
        area: "Probing container",
        names: &[
            "with readiness probe should not be ready before initial delay and never restart",
            "with readiness probe that fails should never be ready and never restart",
            "should be restarted with a exec \"cat /tmp/health\" liveness probe",
            "should *not* be restarted with a exec \"cat /tmp/health\" liveness probe",
            "should be restarted with a /healthz http liveness probe",
            "should *not* be restarted with a tcp:8080 liveness probe",
            "should have monotonically increasing restart count",
            "should *not* be restarted with a /healthz http liveness probe",
            "should be restarted with an exec liveness probe with timeout",
            "should not be ready with an exec readiness probe timeout",
            "should override timeoutGracePeriodSeconds when LivenessProbe field is set",
            "should override timeoutGracePeriodSeconds when StartupProbe field is set",
            "should *not* be restarted with a GRPC liveness probe",
            "should be restarted with a GRPC liveness probe",
        ],
    },
    Group {
        area: "Container Lifecycle Hook",
        names: &[
            "should execute poststart exec hook properly",
            "should execute prestop exec hook properly",
            "should execute poststart http hook properly",
            "should execute poststart https hook properly",
            "should execute prestop http hook properly",
            "should execute prestop https hook properly",
        ],
    },
    Group {
        area: "Container Runtime",
        names: &[
            "should run with the expected status",
            "should report termination message if TerminationMessagePath is set",
            "should report termination message if TerminationMessagePath is set as non-root user \
             and at a non-default path",
            "should report termination message from log output if TerminationMessagePolicy \
             FallbackToLogsOnError is set",
            "should report termination message as empty when pod succeeds and \
             TerminationMessagePolicy FallbackToLogsOnError is set",
            "should report termination message from file when pod succeeds and \
             TerminationMessagePolicy FallbackToLogsOnError is set",
            "should not be able to pull image from invalid registry",
            "should be able to pull image",
            "should not be able to pull from private registry without secret",
        ],
    },
    Group {
        area: "Containers",
        names: &[
            "should use the image defaults if command and args are blank",
            "should be able to override the image's default arguments (container cmd)",
            "should be able to override the image's default command (container entrypoint)",
            "should be able to override the image's default command and arguments",
        ],
    },
    Group {
        area: "Kubelet",
        names: &[
            "should print the output to logs",
            "should have an terminated reason",
            "should be possible to delete",
            "should write entries to /etc/hosts",
            "should not write to root filesystem",
            "should write entries to /etc/hosts when hostNetwork is enabled",
        ],
    },
    Group {
        area: "KubeletManagedEtcHosts",
        names: &["should test kubelet managed /etc/hosts file"],
    },
    Group {
        area: "Variable Expansion",
        names: &[
            "should allow composing env vars into new env vars",
            "should allow substituting values in a container's command",
            "should allow substituting values in a container's args",
            "should allow substituting values in a volume subpath",
            "should fail substituting values in a volume subpath with backticks",
            "should fail substituting values in a volume subpath with absolute path",
            "should verify that a failing subpath expansion can be modified during the lifecycle \
             of a container",
            "should succeed in writing subpaths in container",
        ],
    },
    Group {
        area: "Downward API",
        names: &[
            "should provide pod name, namespace and IP address as env vars",
            "should provide host IP as an env var",
            "should provide hostIPs as an env var",
            "should provide container's limits.cpu/memory and requests.cpu/memory as env vars",
            "should provide default limits.cpu/memory from node allocatable",
            "should provide pod UID as env vars",
        ],
    },
    Group {
        area: "ConfigMap",
        names: &[
            "should be consumable via environment variable",
            "should be consumable via the environment",
            "should fail to create ConfigMap with empty key",
            "should run through a ConfigMap lifecycle",
        ],
    },
    Group {
        area: "Secrets",
        names: &[
            "should be consumable from pods in env vars",
            "should be consumable via the environment",
            "should fail to create secret due to empty secret key",
            "should patch a secret",
        ],
    },
    Group {
        area: "Security Context",
        names: &[
            "should run the container with uid 65534",
            "should run the container with uid 0",
            "should run the container with readonly rootfs when readOnlyRootFilesystem=true",
            "should run the container with writable rootfs when readOnlyRootFilesystem=false",
            "should run the container as unprivileged when false",
            "should allow privilege escalation when not explicitly set and uid != 0",
            "should not allow privilege escalation when false",
            "should allow privilege escalation when true",
        ],
    },
    Group { area: "PrivilegedPod", names: &["should enable privileged commands"] },
    Group {
        area: "Sysctls",
        names: &[
            "should support sysctls",
            "should reject invalid sysctls",
            "should not launch unsafe, but not explicitly enabled sysctls on the node",
            "should support sysctls with slashes as separator",
        ],
    },
    Group {
        area: "RuntimeClass",
        names: &[
            "should reject a Pod requesting a non-existent RuntimeClass",
            "should schedule a Pod requesting a RuntimeClass without PodOverhead",
            "should schedule a Pod requesting a RuntimeClass and initialize its Overhead",
            "should reject a Pod requesting a deleted RuntimeClass",
            "should support RuntimeClasses API operations",
        ],
    },
    Group {
        area: "PodOSRejection",
        names: &["should reject pod when the node OS doesn't match pod's OS"],
    },
    Group { area: "Lease", names: &["lease API should be available"] },
    Group {
        area: "ConfigMap volume",
        names: &[
            "should be consumable from pods in volume",
            "should be consumable from pods in volume with defaultMode set",
            "should be consumable from pods in volume as non-root",
            "should be consumable from pods in volume with mappings",
            "should be consumable from pods in volume with mappings and Item mode set",
            "should be consumable from pods in volume with mappings as non-root",
            "updates should be reflected in volume",
            "binary data should be reflected in volume",
            "optional updates should be reflected in volume",
            "should be consumable in multiple volumes in the same pod",
            "should be immutable if `immutable` field is set",
        ],
    },
    Group {
        area: "Secrets volume",
        names: &[
            "should be consumable from pods in volume",
            "should be consumable from pods in volume with defaultMode set",
            "should be consumable from pods in volume as non-root with defaultMode and fsGroup set",
            "should be consumable from pods in volume with mappings",
            "should be consumable from pods in volume with mappings and Item Mode set",
            "should be able to mount in a volume regardless of a different secret existing with \
             same name in different namespace",
            "should be consumable in multiple volumes in a pod",
            "optional updates should be reflected in volume",
            "should be immutable if `immutable` field is set",
        ],
    },
    Group {
        area: "Downward API volume",
        names: &[
            "should provide podname only",
            "should set DefaultMode on files",
            "should set mode on item file",
            "should update labels on modification",
            "should update annotations on modification",
            "should provide container's cpu limit",
            "should provide container's memory limit",
            "should provide container's cpu request",
            "should provide container's memory request",
            "should provide node allocatable (cpu) as default cpu limit if the limit is not set",
            "should provide node allocatable (memory) as default memory limit if the limit is \
             not set",
        ],
    },
    Group {
        area: "Projected configMap",
        names: &[
            "should be consumable from pods in volume",
            "should be consumable from pods in volume with defaultMode set",
            "should be consumable from pods in volume as non-root",
            "should be consumable from pods in volume with mappings",
            "should be consumable from pods in volume with mappings and Item mode set",
            "should be consumable from pods in volume with mappings as non-root",
            "updates should be reflected in volume",
            "optional updates should be reflected in volume",
            "should be consumable in multiple volumes in the same pod",
        ],
    },
    Group {
        area: "Projected secret",
        names: &[
            "should be consumable from pods in volume",
            "should be consumable from pods in volume with defaultMode set",
            "should be consumable from pods in volume as non-root with defaultMode and fsGroup set",
            "should be consumable from pods in volume with mappings",
            "should be consumable from pods in volume with mappings and Item Mode set",
            "should be able to mount in a volume regardless of a different secret existing with \
             same name in different namespace",
            "should be consumable in multiple volumes in a pod",
            "optional updates should be reflected in volume",
        ],
    },
    Group {
        area: "Projected downwardAPI",
        names: &[
            "should provide podname only",
            "should set DefaultMode on files",
            "should set mode on item file",
            "should update labels on modification",
            "should update annotations on modification",
            "should provide container's cpu limit",
            "should provide container's memory limit",
            "should provide container's cpu request",
            "should provide container's memory request",
            "should provide node allocatable (cpu) as default cpu limit if the limit is not set",
            "should provide node allocatable (memory) as default memory limit if the limit is \
             not set",
        ],
    },
    Group {
        area: "Projected combined",
        names: &["should project all components that make up the projection API"],
    },
    Group {
        area: "EmptyDir volumes",
        names: &[
            "volume on tmpfs should have the correct mode",
            "should support (root,0644,tmpfs)",
            "should support (root,0666,tmpfs)",
            "should support (root,0777,tmpfs)",
            "should support (non-root,0644,tmpfs)",
            "should support (non-root,0666,tmpfs)",
            "should support (non-root,0777,tmpfs)",
            "volume on default medium should have the correct mode",
            "should support (root,0644,default)",
            "should support (root,0666,default)",
            "should support (root,0777,default)",
            "should support (non-root,0644,default)",
            "should support (non-root,0666,default)",
            "should support (non-root,0777,default)",
            "pod should support shared volumes between containers",
        ],
    },
    Group {
        area: "HostPath",
        names: &[
            "should give a volume the correct mode",
            "should support r/w",
            "should support subPath",
        ],
    },
    Group {
        area: "Networking: Pods",
        names: &[
            "should function for intra-pod communication: http",
            "should function for intra-pod communication: udp",
            "should function for node-pod communication: http",
            "should function for node-pod communication: udp",
        ],
    },
];
