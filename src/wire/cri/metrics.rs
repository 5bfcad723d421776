//! Metrics that the runtime provides. Times in nanoseconds since 1970.

use super::UInt64Value;
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListMetricDescriptorsRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListMetricDescriptorsResponse {
    #[prost(message, repeated, tag = "1")]
    pub descriptors: Vec<MetricDescriptor>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MetricDescriptor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub help: String,
    #[prost(string, repeated, tag = "3")]
    pub label_keys: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxMetricsRequest {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxMetricsResponse {
    #[prost(message, repeated, tag = "1")]
    pub pod_metrics: Vec<PodSandboxMetrics>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxMetrics {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
    #[prost(message, repeated, tag = "3")]
    pub container_metrics: Vec<ContainerMetrics>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerMetrics {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
}

/// `Metric`. Its labels have the order of the descriptor's keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub timestamp: i64,
    #[prost(enumeration = "MetricType", tag = "3")]
    pub metric_type: i32,
    #[prost(string, repeated, tag = "4")]
    pub label_values: Vec<String>,
    #[prost(message, optional, tag = "5")]
    pub value: Option<UInt64Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum MetricType {
    Counter = 0,
    Gauge = 1,
}
