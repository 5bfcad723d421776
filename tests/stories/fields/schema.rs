//! The fields of core/v1 as of Kubernetes 1.34, by place.

/// A place of fields.
pub struct Place {
    /// JSON pointer in the story's pod.
    pub at: &'static str,
    /// A space between them.
    pub fields: &'static str,
}

pub const PLACES: &[Place] = &[
    Place {
        at: "/spec",
        fields: "activeDeadlineSeconds affinity automountServiceAccountToken containers dnsConfig \
            dnsPolicy enableServiceLinks ephemeralContainers hostAliases hostIPC hostNetwork \
            hostPID hostUsers hostname hostnameOverride imagePullSecrets initContainers nodeName \
            nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates \
            resourceClaims resources restartPolicy runtimeClassName schedulerName \
            schedulingGates securityContext serviceAccount serviceAccountName \
            setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds \
            tolerations topologySpreadConstraints volumes",
    },
    Place {
        at: "/spec/securityContext",
        fields: "appArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser \
            seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroups \
            supplementalGroupsPolicy sysctls windowsOptions",
    },
    Place {
        at: "/spec/containers/0",
        fields: "args command env envFrom image imagePullPolicy lifecycle livenessProbe name \
            ports readinessProbe resizePolicy resources restartPolicy restartPolicyRules \
            securityContext startupProbe stdin stdinOnce terminationMessagePath \
            terminationMessagePolicy tty volumeDevices volumeMounts workingDir",
    },
    Place { at: "/spec/initContainers/0", fields: "restartPolicy" },
    Place {
        at: "/spec/containers/0/securityContext",
        fields: "allowPrivilegeEscalation appArmorProfile capabilities privileged procMount \
            readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxOptions \
            seccompProfile windowsOptions",
    },
    Place { at: "/spec/containers/0/resources", fields: "claims limits requests" },
    Place {
        at: "/spec/containers/0/ports/0",
        fields: "containerPort hostIP hostPort name protocol",
    },
    Place {
        at: "/spec/containers/0/volumeMounts/0",
        fields: "mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr",
    },
    Place { at: "/spec/containers/0/env/0", fields: "name value valueFrom" },
    Place {
        at: "/spec/containers/0/env/1/valueFrom",
        fields: "configMapKeyRef fieldRef fileKeyRef resourceFieldRef secretKeyRef",
    },
    Place { at: "/spec/containers/0/lifecycle", fields: "postStart preStop stopSignal" },
    Place {
        at: "/spec/containers/0/livenessProbe",
        fields: "exec failureThreshold grpc httpGet initialDelaySeconds periodSeconds \
            successThreshold tcpSocket terminationGracePeriodSeconds timeoutSeconds",
    },
    Place {
        at: "/spec/volumes/0",
        fields: "awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi \
            downwardAPI emptyDir ephemeral fc flexVolume flocker gcePersistentDisk gitRepo \
            glusterfs hostPath image iscsi name nfs persistentVolumeClaim photonPersistentDisk \
            portworxVolume projected quobyte rbd scaleIO secret storageos vsphereVolume",
    },
];
