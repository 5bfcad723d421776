//! Upstream tests that no agent can pass without an API server, each with the reason.

/// Area, name, reason.
pub(crate) type Aside = (&'static str, &'static str, &'static str);

const API: &str = "API server alone: no node has a part in it";
const SERVICES: &str = "needs services, which only an API server has";

#[cfg(not(feature = "probe-https"))]
const HTTPS: &str = "needs feature probe-https, which only the full set has";

/// All of them.
pub(crate) const ASIDE: &[Aside] = &[
    ("Pods", "should contain environment variables for services", SERVICES),
    ("Pods", "should delete a collection of pods", API),
    ("Pods", "should run through the lifecycle of Pods and PodStatus", API),
    ("Pods", "should patch a pod status", API),
    ("Pods", "should support pod readiness gates", "needs who sets the condition: the API server"),
    ("ConfigMap", "should fail to create ConfigMap with empty key", API),
    ("ConfigMap", "should run through a ConfigMap lifecycle", API),
    ("Secrets", "should fail to create secret due to empty secret key", API),
    ("Secrets", "should patch a secret", API),
    (
        "RuntimeClass",
        "should schedule a Pod requesting a RuntimeClass and initialize its Overhead",
        API,
    ),
    ("RuntimeClass", "should support RuntimeClasses API operations", API),
    #[cfg(not(feature = "probe-https"))]
    ("Container Lifecycle Hook", "should execute poststart https hook properly", HTTPS),
    #[cfg(not(feature = "probe-https"))]
    ("Container Lifecycle Hook", "should execute prestop https hook properly", HTTPS),
    ("Sysctls", "should reject invalid sysctls", API),
    ("Lease", "lease API should be available", API),
    ("ConfigMap volume", "should be immutable if `immutable` field is set", API),
    ("Secrets volume", "should be immutable if `immutable` field is set", API),
];
