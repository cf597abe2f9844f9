{{/* A Deployment that runs a group of events: (list . "web-push" VALUES ARGUMENT) */}}
{{- define "sluice.group" -}}
{{- $ := index . 0 -}}
{{- $group := index . 1 -}}
{{- $values := index . 2 -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "sluice.name" $ }}-{{ $group }}
  labels: {{- include "sluice.labels" (list $ $group) | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  selector:
    matchLabels: {{- include "sluice.selector" (list $ $group) | nindent 6 }}
  template:
    metadata:
      labels: {{- include "sluice.labels" (list $ $group) | nindent 8 }}
      {{- with $.Values.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "sluice.pod" (list $ $group 45) | nindent 6 }}
      containers:
        - name: {{ $group }}
          {{- include "sluice.container" $ | nindent 10 }}
          args:
            - group
            - run
            - {{ $group }}
            - --metrics=:9145
            - --shards={{ $.Values.shards }}
            {{- with index . 3 }}
            - {{ . | quote }}
            {{- end }}
            {{- range $values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            - { name: SLUICE_REDIS_URL_FILE, value: /run/secrets/sluice/redis-url }
            - { name: SLUICE_DATABASE_URL_FILE, value: /run/secrets/sluice/database-url }
            {{- if eq $group "web-push" }}
            - { name: SLUICE_VAPID_KEY_FILE, value: /run/secrets/sluice/vapid-key }
            {{- end }}
            {{- with include "sluice.env" $ | trim }}{{ . | nindent 12 }}{{ end }}
          ports:
            - { name: metrics, containerPort: 9145 }
          # As that of a worker.
          startupProbe: { tcpSocket: { port: metrics }, periodSeconds: 2, failureThreshold: 300 }
          # Redis and the database respond.
          readinessProbe: { exec: { command: [sluice, health] }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 3 }
          livenessProbe: { tcpSocket: { port: metrics }, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6 }
          resources: {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - { name: secrets, mountPath: /run/secrets/sluice, readOnly: true }
      volumes:
        {{- include "sluice.secretVolume" (concat (list $ "redis-url" "database-url") (ternary (list "vapid-key") (list) (eq $group "web-push"))) | nindent 8 }}
{{- end }}
