{{- define "sluice.name" -}}
{{- if contains "sluice" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-sluice" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Labels that select the pods of a component: (list . "edge") */}}
{{- define "sluice.selector" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: sluice-{{ (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Secret and key of one secret value: (list . "redis-url") */}}
{{- define "sluice.secret" -}}
{{- $ := index . 0 -}}
{{- $key := index . 1 -}}
{{- with get $.Values.secrets $key -}}
name: {{ .name | quote }}, key: {{ .key | default $key | quote }}
{{- else -}}
name: {{ required (printf "existingSecret is empty: create a Secret with the key %s and set its name; values.yaml lists its keys" $key) $.Values.existingSecret | quote }}, key: {{ $key }}
{{- end }}
{{- end }}

{{/* Which tokens are accepted, as arguments of edges and backends. */}}
{{- define "sluice.tokenArgs" -}}
{{- with .Values.tokenKeys }}
- {{ printf "--token-keys=%s" . | quote }}
{{- end }}
{{- with .Values.tokenIssuer }}
- {{ printf "--token-issuer=%s" . | quote }}
{{- end }}
{{- with .Values.tokenAudience }}
- {{ printf "--token-audience=%s" . | quote }}
{{- end }}
{{- end }}

{{/* The token secret is a file; with tokenKeys it may be missing. */}}
{{- define "sluice.tokenSecret" -}}
{{- if .Values.tokenKeys -}}
- name: SLUICE_TOKEN_SECRET
  valueFrom: { secretKeyRef: { {{ include "sluice.secret" (list . "token-secret") }}, optional: true } }
{{- else -}}
- { name: SLUICE_TOKEN_SECRET_FILE, value: /run/secrets/sluice/token-secret }
{{- end }}
{{- end }}

{{/* What all pods have in common: (list . "edge" GRACE) */}}
{{- define "sluice.pod" -}}
{{- $ := index . 0 -}}
serviceAccountName: {{ include "sluice.name" $ }}
automountServiceAccountToken: false
enableServiceLinks: false
# Longer than the longest drain; as TimeoutStopSec of the Debian units.
terminationGracePeriodSeconds: {{ index . 2 }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "sluice.selector" . | nindent 8 }}
{{- with $.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "sluice.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The groups of events that run, separated by spaces. */}}
{{- define "sluice.groups" -}}
{{- if .Values.points.replicas }}points {{ end }}{{ if .Values.webhooks.replicas }}webhooks {{ end }}{{ if .Values.webPush.replicas }}web-push{{ end }}
{{- end }}

{{/* Variables of all containers. SSL_CERT_DIR adds the CA of the secret volume; SSL_CERT_FILE would replace the public ones. */}}
{{- define "sluice.env" -}}
{{- range $name, $value := .Values.env }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- if .Values.caBundle.name }}
- { name: SSL_CERT_DIR, value: /run/secrets/sluice/ca }
{{- end }}
{{- end }}

{{/* Secret values and the CA as files: (list . "redis-url" ...) */}}
{{- define "sluice.secretVolume" -}}
{{- $ := index . 0 -}}
- name: secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range rest . }}
      {{- $from := printf "{ %s }" (include "sluice.secret" (list $ .)) | fromYaml }}
      - secret: { name: {{ $from.name | quote }}, items: [{ key: {{ $from.key | quote }}, path: {{ . }} }] }
      {{- end }}
      {{- with $.Values.caBundle }}
      {{- if .name }}
      - configMap: { name: {{ .name | quote }}, items: [{ key: {{ .key | quote }}, path: ca/ca.crt }] }
      {{- end }}
      {{- end }}
{{- end }}

{{/* The number of pods, unless a HorizontalPodAutoscaler sets it: (list . "edge") */}}
{{- define "sluice.replicas" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
{{- if not $values.autoscaling.enabled }}
replicas: {{ $values.replicas }}
{{- else if gt (int $values.autoscaling.minReplicas) (int $values.autoscaling.maxReplicas) }}
{{- fail (printf "%s.autoscaling.minReplicas is greater than maxReplicas" (index . 1)) }}
{{- end }}
{{- end }}

{{/* Permissions to connect: of all pods, to the stores, and to web servers on any host. */}}
{{- define "sluice.egress" -}}
- ports: [{ port: 53, protocol: UDP }, { port: 53, protocol: TCP }]
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sluice.stores" -}}
- ports:
    {{- range .Values.networkPolicy.storePorts }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .Values.networkPolicy.storesTo }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- define "sluice.https" -}}
{{- with .Values.networkPolicy.httpsPorts -}}
- ports:
    {{- range . }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
{{- end }}
{{- end }}
