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

{{- define "sluice.secret" -}}
{{ required "existingSecret is empty: create a Secret and set its name; values.yaml lists its keys" .Values.existingSecret }}
{{- end }}

{{/* What all pods have in common: (list . "edge" GRACE) */}}
{{- define "sluice.pod" -}}
{{- $ := index . 0 -}}
serviceAccountName: {{ include "sluice.name" $ }}
automountServiceAccountToken: false
enableServiceLinks: false
# Longer than the longest drain.
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
{{- end }}

{{/* The secret as files: (list . "token-secret" ...) */}}
{{- define "sluice.secretVolume" -}}
- name: secrets
  secret:
    secretName: {{ include "sluice.secret" (index . 0) }}
    defaultMode: 0440
    items:
      {{- range rest . }}
      - { key: {{ . }}, path: {{ . }} }
      {{- end }}
{{- end }}
