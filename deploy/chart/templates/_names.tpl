{{- define "ownergraph.labels" -}}
app.kubernetes.io/name: ownergraph
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- /* What selects the pods of a component; never changes, because a Deployment's selector cannot. */ -}}
{{- define "ownergraph.selector" -}}
app.kubernetes.io/name: ownergraph
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- define "ownergraph.image" -}}
{{- $image := .root.Values.image -}}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .name }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{- /* Names of what belongs to no namespace. */ -}}
{{- define "ownergraph.global" -}}ownergraph-{{ . }}{{- end }}

{{- /* Whether certificates identify callers; "true" or nothing. */ -}}
{{- define "ownergraph.clientCertificates" -}}
{{- $tls := .Values.tls -}}
{{- if $tls.enabled -}}
{{- if kindIs "bool" $tls.clientCertificates -}}
{{- if $tls.clientCertificates }}true{{ end -}}
{{- else if not (and (eq $tls.source "certManager") $tls.certManager.issuerRef) -}}true{{- end -}}
{{- end -}}
{{- end }}

{{- /* The name on the graph service's certificate that executors ask for: they reach pods by their addresses. */ -}}
{{- define "ownergraph.serverName" -}}graph-service.{{ .Release.Namespace }}.svc{{- end }}

{{- define "ownergraph.anyAddress" -}}{{ if eq .Values.ipFamily "IPv6" }}[::]{{ else }}0.0.0.0{{ end }}{{- end }}

{{- /* Probes of a port that speaks TLS where everything does. */ -}}
{{- define "ownergraph.probes" -}}
livenessProbe:
  httpGet:
    path: /livez
    port: admin
    scheme: {{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: admin
    scheme: {{ ternary "HTTPS" "HTTP" .Values.tls.enabled }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- define "ownergraph.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /* Flags of both components for traces. */ -}}
{{- define "ownergraph.traces" -}}
{{- with .Values.traces }}
{{- if .endpoint }}
- --otlp-endpoint={{ .endpoint }}
- --trace-sample={{ .sample }}
{{- if .caConfigMap }}
- --otlp-ca=/etc/ownergraph/traces/ca.crt
{{- end }}
{{- if hasPrefix "http://" .endpoint }}
- --otlp-insecure
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Where traces need a file. */ -}}
{{- define "ownergraph.tracesMount" -}}
{{- if and .Values.traces.endpoint .Values.traces.caConfigMap }}
- name: traces
  mountPath: /etc/ownergraph/traces
  readOnly: true
{{- end }}
{{- end }}
{{- define "ownergraph.tracesVolume" -}}
{{- if and .Values.traces.endpoint .Values.traces.caConfigMap }}
- name: traces
  configMap:
    name: {{ .Values.traces.caConfigMap }}
{{- end }}
{{- end }}

{{- /* What the pods of both components have alike. */ -}}
{{- define "ownergraph.pod" -}}
{{- $of := .of -}}
serviceAccountName: {{ $of.serviceAccount }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- if .root.Values.priorityClass.name }}
priorityClassName: {{ .root.Values.priorityClass.name }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $of.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    # Pods of one version: in an update the old pods are about to stop.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "ownergraph.selector" $.component | nindent 8 }}
  {{- end }}
{{- end }}

{{- /* Where the pods of both components go; its dot is .Values.networkPolicy. */ -}}
{{- define "ownergraph.commonEgress" -}}
# Names.
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
# The API server.
- ports:
    {{- range .apiServerPorts }}
    - { port: {{ int . }}, protocol: TCP }
    {{- end }}
  {{- with .apiServer }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
